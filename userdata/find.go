package userdata

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Query says whose data to find.
type Query struct {
	// UserID is the canonical name of a principal.
	UserID string
	// Variables are those to search for the user id, too.
	Variables []Variable
	// PrincipalIDs are the principals that are meant; empty: all of the user id.
	PrincipalIDs []string
}

// Kind is how a person is involved in a process instance.
type Kind string

// Kinds.
const (
	Initiator   Kind = "INITIATOR"
	Participant Kind = "PARTICIPANT"
	InVariable  Kind = "VARIABLE"
)

// Reason is why a process instance was found.
type Reason struct {
	Kind     Kind
	Variable Variable // of InVariable
	Match    Match    // of InVariable
}

// Instance is a process instance that was found. One that is gone itself has no status and no invocation.
type Instance struct {
	ID         int64
	Invocation string
	Status     int32
	Reasons    []Reason
}

// Found is what was found.
type Found struct {
	Principals  []string
	Instances   []Instance
	OrphanTasks []int64
	NotSearched []string
}

// BlindSpots says what cannot be found in the database's tables.
func (d *Database) BlindSpots() []string {
	spots := []string{
		"process instances that a watched folder started: who started them is encoded in their stored data",
		"process instances that a publish instance started: they hold nothing of who started them",
		"process instances that an e-mail started: the sender stands in an opaque column of tb_job_instance",
	}
	if d.Manager == nil {
		spots = append(spots, "documents of process variables in the document storage (GDS): only the Forms server knows which they are")
	}
	return append(spots, "what stands inside documents")
}

// ErrManyPrincipals says that a user id has several principals, and that the query does not say which are meant.
var ErrManyPrincipals = errors.New("the user id has several principals; say by principal_ids which are meant")

// ErrNotPrincipal says that a principal is not the user's.
var ErrNotPrincipal = errors.New("is no principal of this user id")

// Find finds every trace of a person, in one snapshot of the database.
func (d *Database) Find(ctx context.Context, q Query) (f *Found, err error) {
	err = pgx.BeginTxFunc(ctx, d.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := d.check(ctx, tx); err != nil {
			return err
		}
		f, err = find(ctx, tx, q)
		return err
	})
	return f, err
}

const (
	principals   = "SELECT id::text FROM edcprincipalentity WHERE canonicalname = $1 ORDER BY id"
	initiated    = "SELECT process_instance_id::bigint, id::bigint FROM tb_task WHERE start_task = 1 AND create_user_id = ANY ($1)"
	participated = `SELECT DISTINCT a.process_instance_id::bigint, CASE WHEN a.process_instance_id = 0 THEN a.task_id::bigint ELSE 0 END
		FROM tb_assignment a JOIN tb_queue q ON a.queue_id = q.id WHERE q.workflow_user_id = ANY ($1)`
	instances = "SELECT id::bigint, COALESCE(long_lived_invocation_id, ''), COALESCE(status, 0)::int FROM tb_process_instance WHERE id = ANY ($1)"
)

// finding gathers what is found.
type finding struct {
	reasons map[int64][]Reason
	orphans map[int64]bool
}

func (f *finding) add(instance int64, r Reason) {
	if !slices.Contains(f.reasons[instance], r) {
		f.reasons[instance] = append(f.reasons[instance], r)
	}
}

func find(ctx context.Context, tx pgx.Tx, q Query) (*Found, error) {
	out := &Found{}
	var err error
	if out.Principals, err = collect(ctx, tx, pgx.RowTo[string], principals, q.UserID); err != nil {
		return nil, fmt.Errorf("find the principals: %w", err)
	}
	meant := out.Principals
	if len(q.PrincipalIDs) > 0 {
		for _, id := range q.PrincipalIDs {
			if !slices.Contains(out.Principals, id) {
				return nil, fmt.Errorf("%q %w", id, ErrNotPrincipal)
			}
		}
		meant = q.PrincipalIDs
	}
	f := &finding{reasons: map[int64][]Reason{}, orphans: map[int64]bool{}}
	for _, part := range []struct {
		kind Kind
		sql  string
	}{{Initiator, initiated}, {Participant, participated}} {
		rows, err := tx.Query(ctx, part.sql, meant)
		if err != nil {
			return nil, err
		}
		var instance, task *int64
		if _, err := pgx.ForEachRow(rows, []any{&instance, &task}, func() error {
			switch {
			case instance == nil:
			case *instance > 0:
				f.add(*instance, Reason{Kind: part.kind})
			case *instance == 0 && task != nil && *task > 0:
				f.orphans[*task] = true
			}
			return nil
		}); err != nil {
			return nil, fmt.Errorf("find the process instances: %w", err)
		}
	}
	for _, v := range q.Variables {
		skipped, err := f.search(ctx, tx, v, q.UserID)
		if err != nil {
			return nil, err
		}
		out.NotSearched = append(out.NotSearched, skipped...)
	}
	out.OrphanTasks = slices.Sorted(maps.Keys(f.orphans))
	out.Instances, err = f.list(ctx, tx)
	return out, err
}

// list returns the process instances, ordered by id.
func (f *finding) list(ctx context.Context, tx pgx.Tx) ([]Instance, error) {
	byID := map[int64]Instance{}
	for id, reasons := range f.reasons {
		byID[id] = Instance{ID: id, Reasons: reasons}
	}
	ids := slices.Sorted(maps.Keys(byID))
	there, err := readInstances(ctx, tx, ids, "")
	if err != nil {
		return nil, fmt.Errorf("read the process instances: %w", err)
	}
	for id, in := range there {
		in.Reasons = byID[id].Reasons
		byID[id] = *in
	}
	var list []Instance
	for _, id := range ids {
		list = append(list, byID[id])
	}
	return list, nil
}
