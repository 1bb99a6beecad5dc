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
	// nil for pace.Balanced.
	Pace *pace.Setting
	// LockTimeout is how long a statement waits for a lock; 0 is 2 seconds.
	LockTimeout time.Duration
	// SynchronousCommit is the synchronous_commit of batches: on, local or off; empty is off. With off a crash of the
	// server may undo the last batches, rows and ledger together, and the next attempt repeats them.
	SynchronousCommit string
}

var SynchronousCommits = []string{"on", "local", "off"}

type Limits = throttle.Limits

type Throttle = throttle.Cause

var Reasons = throttle.Reasons

// Ledger counts what batches do, in their transactions. It is called concurrently if there are several workers.
type Ledger interface {
	// Write queues the statements that count a batch. They are sent with its COMMIT, so that their locks last no longer
	// than that takes; if one of them fails, nothing is committed. settled is called with the result. Its error ends
	// the sweep, and so does the error of Write, before the batch is committed.
	Write(ctx context.Context, b *pgx.Batch, d Delta) (settled func(error) error, err error)
}

// Recorder may stop the engine. It is called concurrently if there are several workers.
type Recorder interface {
	Scanning(scan Scan)
	// The cause is empty if the next batch no longer waits.
	Throttled(throttle Throttle)
	// state is the SQLSTATE of the error.
	Retried(state string)
	Warn(m message.Message)
	// Proceed fails if the sweep must stop. It is called while a batch waits, and before a retry.
	Proceed(ctx context.Context) error
}

// Engine must be made by New, and may be copied.
type Engine struct {
	Settings
	Pool     *pgxpool.Pool
	Ledger   Ledger
	Recorder Recorder
	// StatementTimeout is how long a statement may take before its batch is halved; 0 is 30 seconds.
	StatementTimeout time.Duration
	// Lock is an advisory lock that every batch shares until it ends, so that a successor can wait for the last one; 0
	// disables it.
	Lock int64
	// Durable makes batches commit as the server's settings say, where rows and ledger are in different databases and a
	// crash of the server must not undo one of them.
	Durable bool
	// FlushStats makes each batch flush its statistics when it ends; otherwise they may arrive even after a VACUUM,
	// and contradict it. It needs PostgreSQL 15.
	FlushStats bool

	throttler  *throttle.Throttler
	findAtOnce int // 0 is foundAtOnce
}

// Copies share their samples of the server's load.
func New(e Engine) *Engine {
	e.throttler = &throttle.Throttler{}
	return &e
}

// Wait waits while the load exceeds the limits, and for the pause after the last batch. It must be called outside of
// transactions.
func (e *Engine) Wait(ctx context.Context) error {
	limits := e.Limits
	limits.Gentle = e.Pace.Get() == pace.Gentle
	return e.throttler.Wait(ctx, e.Pool, limits, e.Recorder)
}

// rows count towards RowsPerSecond, and the time towards the pause after the batch.
func (e *Engine) Spend(rows int64, begun time.Time) {
	e.throttler.Spend(rows, e.Limits.RowsPerSecond, time.Since(begun))
}

// Delta is what one batch changed. The sweep continues after it at Cursor.
type Delta struct {
	Deleted int64
	Updated int64
	Dropped int64
	// Rows of other tables that foreign keys deleted with the deleted ones.
	Cascaded int64
	Recorded int64
	// Statements that changed rows, and the most rows that one of them touched.
	Statements, Largest int64
	Space               []Space
	Cursor              Cursor
	// When the batch began; zero if unknown.
	Begun time.Time
}

// A table that a batch changed, or that is about to be vacuumed.
type Space struct {
	Relation string // quoted, with its schema
	Root     string // the relation of the partitioned table, or of the table itself
	Rows     int64  // deleted
	Updated  int64
	Cascaded int64 // of Rows and Updated, by foreign keys
	// TableBytes and IndexBytes are its size before the batch; 0 stands for its current size.
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
	return d.Deleted == 0 && d.Updated == 0 && d.Dropped == 0 && d.Cascaded == 0
}

// Cursor is how far a sweep has come: everything below is done. It becomes invalid when the table is rewritten (VACUUM
// FULL), which Filenode shows. The zero Cursor is the beginning, where a sweep by index always starts.
type Cursor struct {
	Unit     string `json:"unit,omitempty"` // the caller's name for the sweep
	Filenode uint32 `json:"filenode,omitempty"`
	Place    int64  `json:"place,omitempty"` // a block; the key of a remote row
	// Remote rows that SettlePending must settle first; nil if there are none.
	Pending *Pending `json:"pending,omitempty"`
	// Before is what earlier sweeps of the caller retained, Retained what this one retained below Place.
	Before   Retained `json:"before,omitzero"`
	Retained Retained `json:"retained,omitzero"`
}

func (c Cursor) TotalRetained() Retained { return c.Before.Plus(c.Retained) }

// Retained counts obsolete rows that were not deleted, by the reason.
type Retained struct {
	// Failed rows met an error of a trigger, a constraint or a view of the application.
	Failed int64 `json:"failed,omitempty"`
	// Locked rows had locks of other sessions.
	Locked int64 `json:"locked,omitempty"`
	// Suppressed rows were neither locked nor failed: a trigger or rule of the application suppressed their deletion.
	Suppressed int64 `json:"suppressed,omitempty"`
	// Dependent rows are retained because rows that belong to them are.
	Dependent int64 `json:"dependent,omitempty"`
	// OnHold rows are on hold; their deletion was not tried.
	OnHold int64 `json:"on_hold,omitempty"`
	// Tables counts tables that were not swept to their end, with an unknown number of obsolete rows.
	Tables int64 `json:"tables,omitempty"`
}

func (r Retained) Plus(o Retained) Retained {
	return Retained{
		r.Failed + o.Failed, r.Locked + o.Locked, r.Suppressed + o.Suppressed,
		r.Dependent + o.Dependent, r.OnHold + o.OnHold, r.Tables + o.Tables,
	}
}

// Rows leaves out those on hold.
func (r Retained) Rows() int64 { return r.Failed + r.Locked + r.Suppressed + r.Dependent }
