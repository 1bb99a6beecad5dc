package userdata

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Query is the person to search for.
type Query struct {
	// UserID is the canonical name of a principal.
	UserID string
	// Variables are also searched for the user id.
	Variables []Variable
	// PrincipalIDs restricts the search to some principals of the user id; if it is empty, all of them are searched
	// for.
	PrincipalIDs []string
}

// Kind says how a person is involved in a process instance.
type Kind string

const (
	Initiator   Kind = "INITIATOR"
	Participant Kind = "PARTICIPANT"
	InVariable  Kind = "VARIABLE"
)

type Reason struct {
	Kind     Kind
	Variable Variable // only for InVariable
	Match    Match    // only for InVariable
}

// Instance has no status and no invocation if the process instance itself is gone and only other rows of it are
// left.
type Instance struct {
	forms.Instance
	Reasons []Reason
}

// Certain reports whether the process instance is certainly the person's: if a variable contains the user id only as
// a part of something longer, that may be a coincidence.
func (in Instance) Certain() bool {
	return slices.ContainsFunc(in.Reasons, func(r Reason) bool { return r.Match != Part })
}

type Found struct {
	Principals  []string
	Instances   []Instance
	OrphanTasks []int64
	NotSearched []string // what could not be searched, and why
}

// ErrNotPrincipal means that a given principal does not belong to the user id.
var ErrNotPrincipal = failure.Field("principal_ids", "is no principal of this user id")

// These queries may return too many rows, since a collation may treat different texts as equal. Their last column is
// the text that must be compared exactly.
const (
	principalsQuery = "SELECT id, canonicalname FROM edcprincipalentity WHERE canonicalname = @user"
	initiatedQuery  = "SELECT process_instance_id, id, create_user_id FROM tb_task WHERE start_task = 1 AND " +
		"create_user_id IN (@principals)"
	participantQuery = `SELECT DISTINCT a.process_instance_id, CASE
		WHEN a.process_instance_id = 0 THEN a.task_id ELSE 0 END, q.workflow_user_id
		FROM tb_assignment a JOIN tb_queue q ON a.queue_id = q.id WHERE q.workflow_user_id IN (@principals)`
)

type searcher struct {
	tx      *forms.Transaction
	user    string
	reasons map[int64][]Reason // reasons by process instance
	orphans map[int64]bool
}

func search(ctx context.Context, tx *forms.Transaction, q Query) (*Found, error) {
	s := &searcher{tx, q.UserID, map[int64][]Reason{}, map[int64]bool{}}
	result := &Found{}
	var err error
	if result.Principals, err = s.principals(ctx); err != nil {
		return nil, fmt.Errorf("find the principals: %w", err)
	}
	for _, id := range q.PrincipalIDs {
		if !slices.Contains(result.Principals, id) {
			return nil, fmt.Errorf("%q %w", id, ErrNotPrincipal)
		}
	}
	principals := result.Principals
	if len(q.PrincipalIDs) > 0 {
		principals = q.PrincipalIDs
	}
	if err := s.searchTasks(ctx, Initiator, initiatedQuery, principals); err != nil {
		return nil, err
	}
	if err := s.searchTasks(ctx, Participant, participantQuery, principals); err != nil {
		return nil, err
	}
	for _, v := range q.Variables {
		skipped, err := s.searchVariable(ctx, v)
		if err != nil {
			return nil, err
		}
		result.NotSearched = append(result.NotSearched, skipped...)
	}
	result.OrphanTasks = slices.Sorted(maps.Keys(s.orphans))
	result.Instances, err = s.instances(ctx)
	return result, err
}

func (s *searcher) principals(ctx context.Context) (ids []string, err error) {
	var id, name string
	err = s.tx.Each(ctx, principalsQuery, forms.Args{"user": s.user}, []any{&id, &name}, func() {
		if name == s.user {
			ids = append(ids, id)
		}
	})
	slices.Sort(ids)
	return ids, err
}

// searchTasks adds the process instances and orphan tasks that a query returns for the principals.
func (s *searcher) searchTasks(ctx context.Context, kind Kind, query string, principals []string) error {
	var instance, task sql.NullInt64
	var principal string
	args := forms.Args{"principals": principals}
	if err := s.tx.Each(ctx, query, args, []any{&instance, &task, &principal}, func() {
		switch {
		case !instance.Valid || !slices.Contains(principals, principal):
		case instance.Int64 > 0:
			s.add(instance.Int64, Reason{Kind: kind})
		case instance.Int64 == 0 && task.Int64 > 0:
			s.orphans[task.Int64] = true
		}
	}); err != nil {
		return fmt.Errorf("find the process instances: %w", err)
	}
	return nil
}

func (s *searcher) add(instance int64, r Reason) {
	if !slices.Contains(s.reasons[instance], r) {
		s.reasons[instance] = append(s.reasons[instance], r)
	}
}

const instancesPerQuery = 1000

// instances returns the process instances that were found, ordered by id.
func (s *searcher) instances(ctx context.Context) (list []Instance, err error) {
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(s.reasons)), instancesPerQuery) {
		existing, err := s.tx.Instances(ctx, ids, "")
		if err != nil {
			return nil, fmt.Errorf("read the process instances: %w", err)
		}
		for _, id := range ids {
			in := Instance{forms.Instance{ID: id}, s.reasons[id]}
			if existing[id] != nil {
				in.Instance = *existing[id]
			}
			list = append(list, in)
		}
	}
	return list, nil
}
