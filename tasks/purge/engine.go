package purge

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
	"github.com/cleanupd/cleanupd/tasks/purge/throttle"
)

const DefaultTarget = 50 * time.Millisecond

type Settings struct {
	// MaxRows caps the limit of every sweep; 0 disables the cap.
	MaxRows int
	// Target is how long a batch should take on the server before its COMMIT; 0 is DefaultTarget.
	Target time.Duration
	// Workers is how many batches of one sweep may run at once, if the table is large and they do not hinder each
	// other; 0 is 1.
	Workers int
	Limits  Limits
	// Pace is how hard the run works; nil means pace.Balanced.
	Pace *pace.Setting
	// LockTimeout is how long a statement waits for a lock; 0 is 2 seconds.
	LockTimeout time.Duration
	// SynchronousCommit is the synchronous_commit of batches: on, local or off; empty means off. With off, a crash of the
	// server may undo the last batches, their rows and ledger entries together, and the next attempt repeats them.
	SynchronousCommit string
}

var SynchronousCommits = []string{"on", "local", "off"}

type Limits = throttle.Limits

type Throttle = throttle.Cause

var Reasons = throttle.Reasons

// Ledger counts what batches do, in their transactions. It is called concurrently if there are several workers.
type Ledger interface {
	// Write queues the statements that count a batch. They are sent together with its COMMIT, so that their locks are
	// short; if one of them fails, nothing is committed. settled is called with the result of the COMMIT, and an error
	// that it returns ends the sweep. An error of Write ends the sweep before the batch is committed.
	Write(ctx context.Context, b *pgx.Batch, d Delta) (settled func(error) error, err error)
}

// Bounds limit how many rows batches may delete. They are called concurrently if there are several workers.
type Bounds interface {
	// Reserve counts a batch before it is written to the ledger, and fails if it exceeds a bound. release is called if
	// the batch is not committed.
	Reserve(d Delta) (release func(), err error)
}

// Recorder receives the engine's progress, and may stop it. It is called concurrently if there are several workers.
type Recorder interface {
	Scanning(scan Scan)
	// Throttled reports why the next batch waits; the cause is empty when it no longer does.
	Throttled(throttle Throttle)
	// Retried reports that a batch is repeated after an error with this SQLSTATE.
	Retried(state string)
	Warn(m message.Message)
	// Proceed returns an error if the sweep must stop. It is called while a batch waits, and before a retry.
	Proceed(ctx context.Context) error
}

// Engine must be created by New, and may be copied.
type Engine struct {
	Settings
	Pool     *pgxpool.Pool
	Ledger   Ledger
	Recorder Recorder
	Bounds   Bounds // nil without bounds
	// Gate is called before each batch, and ends the sweep with its error; may be nil.
	Gate func(ctx context.Context) error
	// StatementTimeout is how long a statement may take before its batch is halved; 0 is 30 seconds.
	StatementTimeout time.Duration
	// Lock is the key of an advisory lock that each batch shares until it ends, so that a successor can wait for the
	// last batch; 0 disables it.
	Lock int64
	// Durable makes batches commit with the server's synchronous_commit. It is for rows and a ledger in different
	// databases, where a crash of the server must not undo only one of them.
	Durable bool
	// FlushStats makes each batch flush its statistics when it ends. Otherwise they may arrive only after a VACUUM,
	// and contradict it. It needs PostgreSQL 15.
	FlushStats bool

	throttler  *throttle.Throttler
	findAtOnce int // how many rows a search by an index finds at a time; 0 means foundAtOnce
}

// New returns an engine. Its copies share their samples of the server's load.
func New(e Engine) *Engine {
	e.throttler = &throttle.Throttler{}
	return &e
}

// Wait waits while the server's load exceeds the limits, and until the pause after the last batch ends. It must not
// be called in a transaction.
func (e *Engine) Wait(ctx context.Context) error {
	if e.Gate != nil {
		if err := e.Gate(ctx); err != nil {
			return err
		}
	}
	limits := e.Limits
	limits.Gentle = e.Pace.Get() == pace.Gentle
	return e.throttler.Wait(ctx, e.Pool, limits, e.Recorder)
}

// Spend counts the rows of a batch towards RowsPerSecond, and its time towards the pause after it.
func (e *Engine) Spend(rows int64, begun time.Time) {
	e.throttler.Spend(rows, e.Limits.RowsPerSecond, time.Since(begun))
}

// Delta is what one batch changed. The sweep continues after it at Cursor.
type Delta struct {
	Deleted int64
	Updated int64
	Dropped int64
	// Partitions is how many whole partitions were dropped or detached.
	Partitions int64
	// Cascaded counts rows of other tables that foreign keys deleted with the deleted ones.
	Cascaded int64
	Recorded int64
	// Statements is how many statements changed rows; Largest is the most rows that one of them touched.
	Statements, Largest int64
	Space               []Space
	// Trashed are rows that went to the trash, and Restored those that came back from it.
	Trashed, Restored []Trashed
	Cursor            Cursor
	// Begun is when the batch began; zero if unknown.
	Begun time.Time
}

// Space is a table that a batch changed, or that is about to be vacuumed.
type Space struct {
	Relation string // quoted, with its schema
	Root     string // the partitioned table, or the table itself
	Rows     int64  // deleted rows, including those by foreign keys
	Updated  int64
	Cascaded int64 // how many of Rows and Updated foreign keys deleted or updated
	// TableBytes and IndexBytes are its size before the batch; 0 means its current size.
	TableBytes, IndexBytes int64
}

func (d *Delta) addAffected(affected []Affected) {
	for _, a := range affected {
		d.Cascaded, d.Updated = d.Cascaded+a.Deleted, d.Updated+a.Updated
		i := slices.IndexFunc(d.Space, func(s Space) bool { return s.Relation == a.Relation })
		if i < 0 {
			i, d.Space = len(d.Space), append(d.Space, Space{Relation: a.Relation, Root: a.Root})
		}
		s := &d.Space[i]
		s.Rows, s.Updated, s.Cascaded = s.Rows+a.Deleted, s.Updated+a.Updated, s.Cascaded+a.Deleted+a.Updated
	}
}

func (d Delta) Empty() bool {
	return d.Deleted == 0 && d.Updated == 0 && d.Dropped == 0 && d.Partitions == 0 && d.Cascaded == 0 &&
		d.Restored == nil
}

func (d Delta) RowsRestored() (rows int64) {
	for _, t := range d.Restored {
		rows += t.Rows
	}
	return rows
}

// Cursor is how far a sweep has come: everything below it is done. It becomes invalid when the table is rewritten,
// for example by VACUUM FULL; its Filenode then differs. The zero Cursor is the beginning. A sweep by index always
// starts there.
type Cursor struct {
	Unit     string `json:"unit,omitempty"` // the caller's name for the sweep
	Filenode uint32 `json:"filenode,omitempty"`
	Place    int64  `json:"place,omitempty"` // a block number, or the key of a row on another server
	// Pending are rows on another server that SettlePending must settle first; nil if there are none.
	Pending *Pending `json:"pending,omitempty"`
	// Before is what earlier sweeps of the caller retained, and Retained what this one retained below Place.
	Before   Retained `json:"before,omitzero"`
	Retained Retained `json:"retained,omitzero"`
}

func (c Cursor) TotalRetained() Retained { return c.Before.Plus(c.Retained) }

// Retained counts obsolete rows that were not deleted, by reason.
type Retained struct {
	// Failed rows caused an error of a trigger, a constraint or a view of the application.
	Failed int64 `json:"failed,omitempty"`
	// Kept are those of the failed rows that other rows keep by foreign keys which no condition told of before.
	Kept int64 `json:"kept,omitempty"`
	// Locked rows were locked by other sessions.
	Locked int64 `json:"locked,omitempty"`
	// Suppressed rows were neither locked nor failed: a trigger or rule of the application suppressed their deletion.
	Suppressed int64 `json:"suppressed,omitempty"`
	// Dependent rows are retained because rows that refer to them are. No deletion of them was tried.
	Dependent int64 `json:"dependent,omitempty"`
	// OnHold rows are on hold, and no deletion of them was tried.
	OnHold int64 `json:"on_hold,omitempty"`
	// Tables counts tables that were not swept to their end, with an unknown number of obsolete rows.
	Tables int64 `json:"tables,omitempty"`
}

func (r Retained) Plus(o Retained) Retained {
	return Retained{
		r.Failed + o.Failed, r.Kept + o.Kept, r.Locked + o.Locked, r.Suppressed + o.Suppressed,
		r.Dependent + o.Dependent, r.OnHold + o.OnHold, r.Tables + o.Tables,
	}
}

// Rows is the number of retained rows, without those on hold.
func (r Retained) Rows() int64 { return r.Failed + r.Locked + r.Suppressed + r.Dependent }
