package userdata

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

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
}

// ErrManyPrincipals means that the user id has several principals, and the query does not choose among them.
var ErrManyPrincipals = failure.New(failure.Precondition,
	"the user id has several principals; choose among them by principal_ids")

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
	request := m.recordRequest(r)
	request.Salt = newSalt()
	var earlier []string
	if r.Query != nil {
		if request.UserIDHash, err = hashUser(r.Query.UserID, request.Salt); err != nil {
			return "", err
		}
		if earlier, err = failedErasuresOf(ctx, m.Record, request.FormsID, r.Query.UserID); err != nil {
			return "", err
		}
	}
	err = pgx.BeginFunc(ctx, m.Record, func(tx pgx.Tx) error {
		e, err := request.insert(ctx, tx)
		if err != nil {
			return err
		}
		if err := request.inherit(ctx, tx, e, earlier); err != nil {
			return err
		}
		id = e.ID
		if err := e.appendEvents(ctx, tx, events...); err != nil || r.Starting == nil {
			return err
		}
		return r.Starting(ctx, e.ID)
	})
	if err != nil {
		return "", fmt.Errorf("store the erasure: %w", err)
	}
	m.Wake()
	return id, nil
}

func (m *Manager) recordRequest(r Request) request {
	return request{
		FormsID:     m.Forms.Identity(),
		RequestedBy: r.RequestedBy,
		Sweep:       r.Sweep,
		Instances:   r.Instances,
		Tasks:       r.Tasks,
	}
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
