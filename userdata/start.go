package userdata

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/crypto/argon2"

	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/external"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Request asks to erase process instances and orphan tasks by their ids, everything that a query finds, or stale
// documents.
type Request struct {
	Instances, Tasks []int64
	Query            *Query // nil to erase by ids
	Sweep            bool   // sweep documents; the other fields are empty
	RequestedBy      string
	// Starting is called with the id before the erasure is committed, unless it is nil; if it fails, nothing is
	// committed.
	Starting func(ctx context.Context, id string) error

	userIDHash, salt string
	runID            string    // the run that the erasure belongs to; empty if a user requested it
	purge            *criteria // set together with runID
}

// ErrManyPrincipals means that the user id has several principals, and the query does not choose among them.
var ErrManyPrincipals = failure.New(failure.Precondition,
	"the user id has several principals; choose among them by their ids")

// ErrNoStorage means that the document storage is unknown, so that there is nothing to sweep.
var ErrNoStorage = failure.New(
	failure.Precondition,
	"the location of the document storage (GDS) is unknown: start the server with --forms-gds-dir or "+
		"--forms-gds-in-database",
)

// Start only stores the erasure; any replica may carry it out.
func (m *Manager) Start(ctx context.Context, r Request) (id string, err error) {
	if err := m.Own(ctx); err != nil {
		return "", err
	}
	if err := m.Held(ctx); err != nil {
		return "", err
	}
	events, err := m.resolve(ctx, &r)
	if err != nil {
		return "", err
	}
	r.salt = newSalt()
	var earlier []string
	if r.Query != nil {
		if r.userIDHash, err = hashUser(r.Query.UserID, r.salt); err != nil {
			return "", err
		}
		if earlier, err = m.failedErasuresOf(ctx, r.Query.UserID); err != nil {
			return "", err
		}
	}
	err = pgx.BeginFunc(ctx, m.Record, func(tx pgx.Tx) error {
		e, err := m.insert(ctx, tx, r)
		if err != nil {
			return err
		}
		if err := m.inherit(ctx, tx, r, e, earlier); err != nil {
			return err
		}
		id = e.id
		if err := e.appendEvents(ctx, tx, events...); err != nil || r.Starting == nil {
			return err
		}
		return r.Starting(ctx, e.id)
	})
	if err != nil {
		return "", fmt.Errorf("store the erasure: %w", err)
	}
	m.Wake()
	return id, nil
}

// resolve replaces the query of a request by ids, and returns events about the data that it leaves out.
func (m *Manager) resolve(ctx context.Context, r *Request) (events []Event, err error) {
	if r.Sweep && !m.InDatabase && m.Folder == "" {
		return nil, ErrNoStorage
	}
	if r.Query == nil {
		r.Instances, r.Tasks = sortedSet(r.Instances), sortedSet(r.Tasks)
		return nil, m.snapshot(ctx, func(*forms.Transaction) error { return nil })
	}
	found, err := m.Find(ctx, *r.Query)
	if err != nil {
		return nil, err
	}
	switch {
	case len(found.Principals) > 1 && len(r.Query.PrincipalIDs) == 0:
		return nil, fmt.Errorf("%w: %v", ErrManyPrincipals, found.Principals)
	case len(found.Principals) == 0:
		events = append(events, infof("no principal of the Forms database has this user id"))
	}
	r.Instances, r.Tasks = nil, found.OrphanTasks
	for _, in := range found.Instances {
		if in.Certain() {
			r.Instances = append(r.Instances, in.ID)
			continue
		}
		events = append(events, warningf(
			"process instance %d is retained: a variable contains the user id only as a part of something longer; erase "+
				"it by its id if it is the person's",
			in.ID,
		))
	}
	for _, s := range found.NotSearched {
		events = append(events, warningf("not searched: %s", s))
	}
	return events, nil
}

func sortedSet(ids []int64) []int64 { return slices.Compact(slices.Sorted(slices.Values(ids))) }

// insert stores the request. The id of the erasure is higher than the ids of all earlier requests.
func (m *Manager) insert(ctx context.Context, tx pgx.Tx, r Request) (e record, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return e, err
	}
	e = record{id.String(), m.Forms.Identity()}
	if _, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.erasure
			(id, forms_id, requested_by, user_id_hash, salt, sweep, purge, run_id, state, heartbeat)
		VALUES ($1::text::uuid, $2, $3, $4, $5, $6, $7, NULLIF($8::text, '')::uuid,
			CASE WHEN $8::text = '' THEN 'RUNNING' ELSE 'PURGING' END,
			CASE WHEN $8::text = '' THEN NULL ELSE clock_timestamp() END)`,
		e.id, e.formsID, connection.Text(r.RequestedBy), r.userIDHash, r.salt, r.Sweep, r.purge, r.runID,
	); err != nil {
		return e, err
	}
	_, err = e.exec(ctx, tx, `INSERT INTO cleanupd.erasure_item (erasure_id, kind, item_id)
		SELECT $1::text::uuid, $2, unnest($3::bigint[]) UNION ALL SELECT $1::text::uuid, $4, unnest($5::bigint[])`,
		kindInstance, r.Instances, kindTask, r.Tasks)
	return e, err
}

// leftover is a session of an erasure that ended before the session's documents were deleted.
type leftover struct{ Session, Erasure string }

// failedErasuresOf returns earlier erasures of a user that have leftovers. It must not be called in a transaction:
// comparing the user id with many hashes takes longer than a transaction may be idle.
func (m *Manager) failedErasuresOf(ctx context.Context, user string) (erasures []string, err error) {
	rows, _ := m.Record.Query(
		ctx,
		"SELECT id::text, user_id_hash, salt FROM cleanupd.erasure AS e WHERE forms_id = $1 AND state = 'FAILED' AND "+
			"user_id_hash <> '' AND EXISTS (SELECT FROM cleanupd.erasure_session WHERE erasure_id = e.id)",
		m.Forms.Identity(),
	)
	var id, hash, salt string
	_, err = pgx.ForEachRow(rows, []any{&id, &hash, &salt}, func() error {
		same, err := isUser(user, hash, salt)
		if same {
			erasures = append(erasures, id)
		}
		return err
	})
	return erasures, err
}

// leftovers returns the leftovers of the given earlier erasures, and of earlier erasures of the request's items. lock
// is a clause that locks their rows, or "".
func (m *Manager) leftovers(
	ctx context.Context, db external.Querier, r Request, earlier []string, lock string,
) ([]leftover, error) {
	rows, _ := db.Query(
		ctx,
		`SELECT s.session_id, e.id::text FROM cleanupd.erasure_session AS s
			JOIN cleanupd.erasure AS e ON e.id = s.erasure_id
		WHERE e.forms_id = $6 AND e.state = 'FAILED' AND (e.id::text = ANY ($1) OR s.kind = $2 AND s.item_id = ANY ($3)
			OR s.kind = $4 AND s.item_id = ANY ($5))`+lock,
		earlier, kindInstance, r.Instances, kindTask, r.Tasks, m.Forms.Identity(),
	)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[leftover])
}

// inherit moves the leftovers of earlier erasures to e, with the files that the earlier erasures could not report.
func (m *Manager) inherit(ctx context.Context, tx pgx.Tx, r Request, e record, earlier []string) error {
	leftovers, err := m.leftovers(ctx, tx, r, earlier, " FOR UPDATE OF s")
	if err != nil {
		return err
	}
	var sessions, erasures []string
	for _, l := range leftovers {
		sessions, erasures = append(sessions, l.Session), append(erasures, l.Erasure)
	}
	if _, err := e.exec(ctx, tx, `UPDATE cleanupd.erasure_session SET erasure_id = $1::text::uuid
		WHERE forms_id = $3 AND session_id = ANY ($2)`, sessions, e.formsID); err != nil {
		return err
	}
	_, err = e.exec(ctx, tx, `UPDATE cleanupd.erasure_file SET erasure_id = $1::text::uuid
		WHERE erasure_id::text = ANY ($2)`, erasures)
	return err
}

// newSalt returns a random salt in hexadecimal.
func newSalt() string {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	return hex.EncodeToString(salt)
}

// hashing is locked while a user id is hashed, since each hash takes 64 MiB of memory.
var hashing sync.Mutex

// hashUser uses a slow hash, so that guessing user ids is expensive.
func hashUser(user, salt string) (string, error) {
	raw, err := hex.DecodeString(salt)
	if err != nil {
		return "", err
	}
	hashing.Lock()
	defer hashing.Unlock()
	return hex.EncodeToString(argon2.IDKey([]byte(user), raw, 1, 64<<10, 4, 32)), nil
}

func isUser(user, hash, salt string) (bool, error) {
	hashed, err := hashUser(user, salt)
	return err == nil && hashed == hash, err
}
