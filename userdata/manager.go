package userdata

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/readiness"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

type Config struct {
	// Record is the service's own database, in which erasures are requested and recorded.
	Record *pgxpool.Pool
	Forms  *forms.Database
	// Folder is the folder of the document storage; "" if the storage is not in a folder.
	Folder string
	// InDatabase says that the document storage is in the Forms database.
	InDatabase bool
	// Server is asked to erase process instances; if it is nil, they are erased directly in the Forms server's
	// database.
	Server ProcessManager
	// Lease is how long a replica may be silent before any other replica may take over its erasure; 0 means
	// DefaultLease.
	Lease time.Duration
	// Own fails if nothing may be changed because the record belongs to another instance or is a copy; nil means it
	// never fails.
	Own func(ctx context.Context) error
	// OnlyWoken makes Work carry out nothing before the first call of Start or Wake.
	OnlyWoken bool
	// Held fails while everything is on hold, so that nothing may be erased; nil means it never fails.
	Held func(ctx context.Context) error
}

const DefaultLease = 15 * time.Second

// Manager finds and erases user data in one Forms database and its document storage.
type Manager struct {
	Config
	wake      chan struct{} // signals a new erasure to Work
	readiness readiness.Check
}

// New returns a Manager without connecting to the databases.
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

func (m *Manager) claims() claimConfig {
	return claimConfig{Record: m.Record, Forms: m.Forms, Lease: m.Lease, Held: m.Held}
}

func (m *Manager) eraser() eraser {
	return eraser{Folder: m.Folder, InDatabase: m.InDatabase, Server: m.Server}
}

func (m *Manager) rules() purgeStore {
	return purgeStore{Record: m.Record, FormsID: m.Forms.Identity()}
}

// pingTimeout is how long Ready waits for the Forms database.
const pingTimeout = 1500 * time.Millisecond

// errSilent hides the error behind it, since everyone may see this one.
var errSilent = errors.New("the Forms database does not answer")

// Ready fails if the Forms database does not answer, or lacks the service's own tables. It queries the database at
// most once a second.
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
func (m *Manager) Find(ctx context.Context, q Query) (result *Found, err error) {
	err = m.snapshot(ctx, func(tx *forms.Transaction) error {
		result, err = search(ctx, tx, q)
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

// BlindSpots describes, for people, data that cannot be found in the tables of the database.
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

func (m *Manager) Receipt(ctx context.Context, id string) (*Receipt, error) {
	return readReceipt(ctx, m.Record, id)
}

// Receipts returns a page of receipts, newest first, and the token of the next page, which is "" after the last one.
func (m *Manager) Receipts(ctx context.Context, size int, token string) ([]*Receipt, string, error) {
	return readReceipts(ctx, m.Record, size, token)
}

// pollInterval is how long Watch waits before it looks for new events again.
const pollInterval = 100 * time.Millisecond

// Watch calls fn for the erasure's past events and then for new ones, until the erasure ends, and returns the
// receipt.
func (m *Manager) Watch(ctx context.Context, id string, fn func(Event) error) (*Receipt, error) {
	for last := int64(0); ; {
		events, err := readEvents(ctx, m.Record, id, last)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			last = e.Sequence
			if e.Ended {
				if e.Receipt, err = readReceipt(ctx, m.Record, id); err != nil {
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
