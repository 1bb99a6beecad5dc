package userdata

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/cleanupd/cleanupd/internal/failure"
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

// certain reports whether it is the person's: a variable that holds the user id only as a part may be a coincidence.
func (in Instance) certain() bool {
	return slices.ContainsFunc(in.Reasons, func(r Reason) bool { return r.Match != Part })
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
		spots = append(
			spots,
			"documents of process variables in the document storage (GDS): only the Forms server knows which they are",
		)
	}
	return append(spots, "what stands inside documents")
}

// ErrManyPrincipals says that a user id has several principals, and that the query does not say which are meant.
var ErrManyPrincipals = failure.New(
	failure.Precondition, "the user id has several principals; say by principal_ids which are meant",
)

// ErrNotPrincipal says that a principal is not the user's.
var ErrNotPrincipal = failure.Field("principal_ids", "is no principal of this user id")

// Find finds every trace of a person, in one snapshot of the database.
func (d *Database) Find(ctx context.Context, q Query) (f *Found, err error) {
	err = d.Forms.snapshot(ctx, func(tx *transaction) error {
		if err := d.check(ctx, tx); err != nil {
			return err
		}
		f, err = find(ctx, tx, q)
		return err
	})
	return f, err
}

// The statements may find more than is sought, where a collation takes texts for the same that are not: each ends with
// the text to compare.
const (
	principals = "SELECT id, canonicalname FROM edcprincipalentity WHERE canonicalname = @user"
	initiated  = "SELECT process_instance_id, id, create_user_id FROM tb_task WHERE start_task = 1 AND " +
		"create_user_id IN (@principals)"
	participated = `SELECT DISTINCT a.process_instance_id, CASE
		WHEN a.process_instance_id = 0 THEN a.task_id ELSE 0 END, q.workflow_user_id
		FROM tb_assignment a JOIN tb_queue q ON a.queue_id = q.id WHERE q.workflow_user_id IN (@principals)`
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

func find(ctx context.Context, tx *transaction, q Query) (*Found, error) {
	out := &Found{}
	var id, name string
	err := tx.each(ctx, principals, args{"user": q.UserID}, []any{&id, &name}, func() {
		if name == q.UserID {
			out.Principals = append(out.Principals, id)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("find the principals: %w", err)
	}
	slices.Sort(out.Principals)
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
		var instance, task sql.NullInt64
		var principal string
		if err := tx.each(ctx, part.sql, args{"principals": meant}, []any{&instance, &task, &principal}, func() {
			switch {
			case !instance.Valid || !slices.Contains(meant, principal):
			case instance.Int64 > 0:
				f.add(instance.Int64, Reason{Kind: part.kind})
			case instance.Int64 == 0 && task.Int64 > 0:
				f.orphans[task.Int64] = true
			}
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

// idsAtOnce is how many ids a statement names.
const idsAtOnce = 1000

// list returns the process instances, ordered by id.
func (f *finding) list(ctx context.Context, tx *transaction) ([]Instance, error) {
	byID := map[int64]Instance{}
	for id, reasons := range f.reasons {
		byID[id] = Instance{ID: id, Reasons: reasons}
	}
	ids := slices.Sorted(maps.Keys(byID))
	for some := range slices.Chunk(ids, idsAtOnce) {
		there, err := readInstances(ctx, tx, some, "")
		if err != nil {
			return nil, fmt.Errorf("read the process instances: %w", err)
		}
		for id, in := range there {
			in.Reasons = byID[id].Reasons
			byID[id] = *in
		}
	}
	var list []Instance
	for _, id := range ids {
		list = append(list, byID[id])
	}
	return list, nil
}
