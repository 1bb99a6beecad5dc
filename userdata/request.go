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
	"github.com/cleanupd/cleanupd/internal/outside"
	"github.com/cleanupd/cleanupd/internal/severity"
)

// Request says what to erase: by ids, or what a query finds.
type Request struct {
	Instances, Tasks []int64
	Query            *Query // nil: by ids
	Sweep            bool   // neither: the documents whose tasks and form data do not exist
	RequestedBy      string
	// Starting is called with the id before the erasure is committed; an error prevents that. nil: not called.
	Starting func(ctx context.Context, id string) error
}

// Kinds of items of an erasure.
const (
	anInstance = "instance"
	aTask      = "task"
)

// settle turns a request into ids, and returns the events about what it leaves out.
func (d *Database) settle(ctx context.Context, r *Request) (said []Event, err error) {
	if r.Sweep && !d.InDatabase && d.Folder == "" {
		return nil, ErrNoStorage
	}
	if r.Query == nil {
		r.Instances, r.Tasks = unique(r.Instances), unique(r.Tasks)
		return said, d.Forms.snapshot(ctx, func(tx *transaction) error { return d.check(ctx, tx) })
	}
	found, err := d.Find(ctx, *r.Query)
	if err != nil {
		return nil, err
	}
	if len(found.Principals) > 1 && len(r.Query.PrincipalIDs) == 0 {
		return nil, fmt.Errorf("%w: %v", ErrManyPrincipals, found.Principals)
	}
	if len(found.Principals) == 0 {
		said = append(said, logged(severity.Info, "no principal of the Forms database has this user id"))
	}
	r.Instances, r.Tasks = nil, found.OrphanTasks
	for _, in := range found.Instances {
		if in.certain() {
			r.Instances = append(r.Instances, in.ID)
		} else {
			said = append(
				said,
				logged(
					severity.Warning,
					fmt.Sprintf(
						"process instance %d stays: a variable holds the user id only as a part of something longer; "+
							"erase it by its id if it is the person's",
						in.ID,
					),
				),
			)
		}
	}
	for _, what := range found.NotSearched {
		said = append(said, logged(severity.Warning, "not searched: "+what))
	}
	return said, nil
}

func unique(ids []int64) []int64 {
	return slices.Compact(slices.Sorted(slices.Values(ids)))
}

// hashing is held while a user id is hashed, which takes 64 MiB.
var hashing sync.Mutex

// hash hides a user id: comparing it with a guess is possible, but expensive. One is hashed at a time.
func hash(user string, salt []byte) string {
	hashing.Lock()
	defer hashing.Unlock()
	return hex.EncodeToString(argon2.IDKey([]byte(user), salt, 1, 64<<10, 4, 32))
}

// Start stores an erasure, for any replica to work on, and returns its id.
func (d *Database) Start(ctx context.Context, r Request) (id string, err error) {
	if err := d.Own(ctx); err != nil {
		return "", err
	}
	if err := d.Held(ctx); err != nil {
		return "", err
	}
	said, err := d.settle(ctx, &r)
	if err != nil {
		return "", err
	}
	key, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	hashed, salt := "", make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	if r.Query != nil {
		hashed = hash(r.Query.UserID, salt)
	}
	earlier, err := d.sameUser(ctx, r)
	if err != nil {
		return "", err
	}
	e := &erasure{Database: d, id: key.String()}
	err = pgx.BeginFunc(ctx, d.Record, func(tx pgx.Tx) error {
		if _, err := tx.Exec(
			ctx,
			"INSERT INTO cleanupd.erasure (id, forms, requested_by, user_id_hash, salt, sweep) VALUES "+
				"($1::text::uuid, $2, $3, $4, $5, $6)",
			e.id,
			d.Forms.identity,
			connection.Text(r.RequestedBy),
			hashed,
			hex.EncodeToString(salt),
			r.Sweep,
		); err != nil {
			return err
		}
		if err := e.insertItems(ctx, tx, r.Instances, r.Tasks); err != nil {
			return err
		}
		if err := e.inherit(ctx, tx, r, earlier); err != nil {
			return err
		}
		if err := e.append(ctx, tx, said...); err != nil || r.Starting == nil {
			return err
		}
		return r.Starting(ctx, e.id)
	})
	if err != nil {
		return "", fmt.Errorf("store the erasure: %w", err)
	}
	select {
	case d.wake <- struct{}{}:
	default:
	}
	return e.id, nil
}

// insertItems stores the items of the erasure.
func (e *erasure) insertItems(ctx context.Context, tx pgx.Tx, instances, tasks []int64) error {
	_, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.erasure_item (erasure_id, kind, item_id) SELECT $1::text::uuid, $2, unnest($3::bigint[])
			UNION ALL SELECT $1::text::uuid, $4, unnest($5::bigint[])`,
		e.id,
		anInstance,
		instances,
		aTask,
		tasks,
	)
	return err
}

// leftover is a session id of an earlier erasure that ended before its files were deleted.
type leftover struct{ Session, Erasure string }

// sameUser are the earlier erasures of the same user as a request that have leftovers. Many take long to compare,
// longer than a transaction may be idle.
func (d *Database) sameUser(ctx context.Context, r Request) ([]string, error) {
	if r.Query == nil {
		return nil, nil
	}
	same, err := collect(ctx, d.Record, func(row pgx.CollectableRow) (id string, err error) {
		var hashed, salt string
		if err := row.Scan(&id, &hashed, &salt); err != nil {
			return "", err
		}
		raw, err := hex.DecodeString(salt)
		if err != nil || hash(r.Query.UserID, raw) != hashed {
			return "", err
		}
		return id, nil
	}, "SELECT id::text, user_id_hash, salt FROM cleanupd.erasure AS e WHERE forms = $1 AND state = 'FAILED' AND "+
		"user_id_hash <> '' AND EXISTS (SELECT FROM cleanupd.erasure_session WHERE erasure_id = e.id)", d.Forms.identity)
	return slices.DeleteFunc(same, func(id string) bool { return id == "" }), err
}

// leftovers are those of the same items as a request, or of earlier erasures of the same user.
func (d *Database) leftovers(
	ctx context.Context,
	db outside.Querier,
	r Request,
	earlier []string,
	lock string,
) ([]leftover, error) {
	return collect(
		ctx,
		db,
		pgx.RowToStructByPos[leftover],
		`SELECT s.session_id, e.id::text FROM cleanupd.erasure_session AS s
			JOIN cleanupd.erasure AS e ON e.id = s.erasure_id
		WHERE e.forms = $6 AND e.state = 'FAILED' AND (e.id::text = ANY ($1) OR s.kind = $2 AND s.item_id = ANY ($3)
			OR s.kind = $4 AND s.item_id = ANY ($5))`+lock,
		earlier,
		anInstance,
		r.Instances,
		aTask,
		r.Tasks,
		d.Forms.identity,
	)
}

// inherit takes over what earlier erasures left, and the files that they could not report.
func (e *erasure) inherit(ctx context.Context, tx pgx.Tx, r Request, earlier []string) error {
	list, err := e.leftovers(ctx, tx, r, earlier, " FOR UPDATE OF s")
	if err != nil {
		return err
	}
	var sessions, erasures []string
	for _, l := range list {
		sessions, erasures = append(sessions, l.Session), append(erasures, l.Erasure)
	}
	if _, err := tx.Exec(
		ctx,
		"UPDATE cleanupd.erasure_session SET erasure_id = $1::text::uuid WHERE forms = $3 AND session_id = ANY ($2)",
		e.id,
		sessions,
		e.Forms.identity,
	); err != nil {
		return err
	}
	_, err = tx.Exec(
		ctx,
		"UPDATE cleanupd.erasure_file SET erasure_id = $1::text::uuid WHERE erasure_id::text = ANY ($2)",
		e.id,
		erasures,
	)
	return err
}
