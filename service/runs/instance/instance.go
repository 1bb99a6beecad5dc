// Package instance decides whether a service may change a database. Only the instance that owns the database may,
// and not in a copy of it. The identity is stored by package store. Every transaction that changes something calls
// this package first.
package instance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// OtherInstance is the reason why nothing is changed: another instance owns the database, or the database is a
// copy.
const OtherInstance = "INSTANCE"

// Own fails with a failure.Refusal with the reason OtherInstance. If no instance owns the database yet, it makes this
// one the owner.
func Own(ctx context.Context, db campaign.Querier, name string) error {
	stored, now, err := store.ReadIdentities(ctx, db)
	if err != nil {
		return fmt.Errorf("ask whose database it is: %w", err)
	}
	now.Instance = name
	if stored.System == "" {
		return store.InsertIdentity(ctx, db, now)
	}
	if stored == now {
		return nil
	}
	differences := strings.Join(compare(stored, now), "; ")
	return &failure.Refusal{
		Reason:   OtherInstance,
		Metadata: map[string]string{"instance": stored.Instance, "differs": differences},
		Message: fmt.Sprintf("this database is not cleaned by this service: %s; cleanupd adopt makes it its own",
			differences),
	}
}

func compare(stored, now store.Identity) (differences []string) {
	if stored.Instance != now.Instance {
		differences = append(differences,
			fmt.Sprintf("it belongs to the instance %q, and this is %q", stored.Instance, now.Instance))
	}
	if stored.System != now.System {
		differences = append(differences,
			fmt.Sprintf("its system identifier was %s, and is %s", stored.System, now.System))
	}
	if stored.DatabaseOID != now.DatabaseOID {
		differences = append(differences, fmt.Sprintf("its oid was %d, and is %d", stored.DatabaseOID, now.DatabaseOID))
	}
	return differences
}

type Owner struct {
	name    string
	log     *slog.Logger
	foreign atomic.Bool // what Owns has logged last
}

func NewOwner(name string, log *slog.Logger) *Owner { return &Owner{name: name, log: log} }

func (o *Owner) Name() string { return o.name }

// Check fails like Own.
func (o *Owner) Check(ctx context.Context, db campaign.Querier) error { return Own(ctx, db, o.name) }

// Lock fails like Own, and keeps other instances from adopting the database until the transaction ends.
func (o *Owner) Lock(ctx context.Context, tx pgx.Tx) error {
	if err := store.LockIdentity(ctx, tx); err != nil {
		return err
	}
	return o.Check(ctx, tx)
}

// Owns reports whether this instance owns the database. It logs once when that is no longer so.
func (o *Owner) Owns(ctx context.Context, db campaign.Querier) (bool, error) {
	err := o.Check(ctx, db)
	refusal := (*failure.Refusal)(nil)
	if !errors.As(err, &refusal) {
		o.foreign.Store(false)
		return err == nil, err
	}
	if !o.foreign.Swap(true) {
		o.log.Error("serving dry runs and reads only", "reason", err)
	}
	return false, nil
}

type Adoption struct {
	From, To string
	// Runs are the active runs, which adoption ends.
	Runs []uuid.UUID
	// Scheduled means that the schedule is enabled, which adoption disables.
	Scheduled bool
}

func PreviewAdoption(ctx context.Context, db campaign.Querier, name string) (a Adoption, err error) {
	stored, now, err := store.ReadIdentities(ctx, db)
	if err != nil {
		return a, err
	}
	now.Instance = name
	a.From, a.To = describe(stored), describe(now)
	a.Runs, a.Scheduled, err = store.ActiveIDs(ctx, db)
	return a, err
}

func describe(i store.Identity) string {
	if i.System == "" {
		return "no instance"
	}
	return fmt.Sprintf("instance %q, system identifier %s, database oid %d", i.Instance, i.System, i.DatabaseOID)
}
