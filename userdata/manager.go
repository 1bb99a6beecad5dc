package userdata

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/readiness"
	"github.com/cleanupd/cleanupd/userdata/claim"
	"github.com/cleanupd/cleanupd/userdata/erasure"
	"github.com/cleanupd/cleanupd/userdata/forms"
	"github.com/cleanupd/cleanupd/userdata/gds"
	"github.com/cleanupd/cleanupd/userdata/purge"
	"github.com/cleanupd/cleanupd/userdata/record"
	"github.com/cleanupd/cleanupd/userdata/report"
	"github.com/cleanupd/cleanupd/userdata/search"
)

type Config struct {
	// The service's own database, in which erasures are requested and recorded.
	Record *pgxpool.Pool
	Forms  *forms.Database
	// Of the document storage; "" if it is not in a folder.
	Folder string
	// The document storage is in the database.
	InDatabase bool
	// nil: only the Forms server's database is changed.
	Server erasure.ProcessManager
	// Any other replica may take over an erasure whose replica has been silent for this long; 0: DefaultLease.
	Lease time.Duration
	// Fails if nothing may be changed because the record belongs to another instance, or is a copy; nil: never.
	Own func(ctx context.Context) error
	// Fails while everything is on hold, so that nothing may be erased; nil: never.
	Held func(ctx context.Context) error
}

const DefaultLease = 15 * time.Second

// In one Forms database with its document storage.
type Manager struct {
	Config
	wake      chan struct{} // signals a new erasure to Work
	readiness readiness.Check
}

// New does not connect.
func New(c Config) *Manager {
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	never := func(context.Context) error { return nil }
	if c.Own == nil {
		c.Own = never
	}
	if c.Held == nil {
		c.Held = never
	}
	return &Manager{Config: c, wake: make(chan struct{}, 1)}
}

func (m *Manager) claims() claim.Config {
	return claim.Config{Record: m.Record, Forms: m.Forms, Lease: m.Lease, Held: m.Held}
}

func (m *Manager) storage() gds.Storage {
	return gds.Storage{Folder: m.Folder, InDatabase: m.InDatabase}
}

func (m *Manager) eraser() erasure.Eraser {
	return erasure.Eraser{Storage: m.storage(), Server: m.Server}
}

func (m *Manager) rules() purge.Store {
	return purge.Store{Record: m.Record, FormsID: m.Forms.Identity()}
}

// How long Ready waits for the Forms database.
const pingTimeout = 1500 * time.Millisecond

// Everyone may see this, so it hides the error behind it.
var errSilent = errors.New("the Forms database does not answer")

// Ready fails if the Forms database does not answer, or lacks the service's own tables. It asks at most once a second.
func (m *Manager) Ready(ctx context.Context) error {
	return m.readiness.Get(func(error) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
		defer cancel()
		if err := m.Forms.Ping(ctx); err != nil {
			return errSilent
		}
		return nil
	})
}

// Find reads one snapshot of the database.
func (m *Manager) Find(ctx context.Context, q search.Query) (result *search.Result, err error) {
	err = m.snapshot(ctx, func(tx *forms.Transaction) error {
		result, err = search.Run(ctx, tx, q)
		return err
	})
	return result, err
}

func (m *Manager) snapshot(ctx context.Context, fn func(tx *forms.Transaction) error) error {
	return m.Forms.Snapshot(ctx, func(tx *forms.Transaction) error {
		if err := tx.CheckTables(ctx, m.InDatabase); err != nil {
			return err
		}
		return fn(tx)
	})
}

// BlindSpots says, for people, what cannot be found in the tables of the database.
func (m *Manager) BlindSpots() []string {
	spots := []string{
		"process instances that a watched folder started: who started them is encoded in their stored data",
		"process instances that a publish instance started: they do not store who started them",
		"process instances that an e-mail started: the sender is in an opaque column of tb_job_instance",
	}
	if m.Server == nil {
		spots = append(spots,
			"documents of process variables in the document storage (GDS): only the Forms server knows which they are")
	}
	return append(spots, "the contents of documents")
}

func (m *Manager) Receipt(ctx context.Context, id string) (*report.Receipt, error) {
	return record.Receipt(ctx, m.Record, id)
}

// Receipts are newest first; the token is "" on the last page.
func (m *Manager) Receipts(ctx context.Context, size int, token string) ([]*report.Receipt, string, error) {
	return record.Receipts(ctx, m.Record, size, token)
}

// In case of new events.
const pollInterval = 100 * time.Millisecond

// Watch begins with past events, and ends with the receipt.
func (m *Manager) Watch(ctx context.Context, id string, fn func(report.Event) error) (*report.Receipt, error) {
	for last := int64(0); ; {
		events, err := record.Events(ctx, m.Record, id, last)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			last = e.Sequence
			if e.Ended {
				if e.Receipt, err = record.Receipt(ctx, m.Record, id); err != nil {
					return nil, err
				}
			}
			if err := fn(e); err != nil || e.Ended {
				return e.Receipt, err
			}
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
