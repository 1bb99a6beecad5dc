// Package userdata finds and erases one person's data in the workflows of AEM Forms: in the Forms server's database
// and in its Global Document Storage (GDS), which is a folder or tables. It also purges process instances that ended
// long ago, as tasks of runs, and sweeps stale documents. Package service calls the Manager, which ties the packages
// below together.
//
// An erasure is recorded in the service's own database. Each transaction that erases also writes an entry to a
// ledger in the Forms database, and the record is brought up to date from that ledger. So an erasure continues
// after a crash, and its receipt is exact. Files are deleted afterwards: the record keeps the ids of their sessions
// until then.
package userdata

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/migrate"
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
	// Lease is how long after the last renewal any other replica may take over an erasure; 0 means DefaultLease.
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

func (m *Manager) snapshot(ctx context.Context, fn func(tx *forms.Transaction) error) error {
	return m.Forms.Snapshot(ctx, func(tx *forms.Transaction) error {
		if err := tx.CheckTables(ctx, m.InDatabase); err != nil {
			return err
		}
		return fn(tx)
	})
}

// pingTimeout is how long Ready waits for the Forms database.
const pingTimeout = 1500 * time.Millisecond

// errSilent replaces the actual error, since any caller may see it.
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

//go:embed migrations/*.sql
var migrations embed.FS

func Migrate(ctx context.Context, conn *pgx.Conn) error {
	return migrate.Up(ctx, conn, migrations, "forms_schema_version")
}

func MigrationPending(ctx context.Context, conn *pgx.Conn) (bool, error) {
	return migrate.Pending(ctx, conn, migrations, "forms_schema_version")
}

// SchemaSQL returns the statements that create the tables. It adds no rows.
func SchemaSQL() (string, error) { return migrate.SQL(migrations, "forms_schema_version") }
