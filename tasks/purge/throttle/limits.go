package throttle

import (
	"strings"
	"time"
)

// Limits configure the load above which a batch waits before it begins. A limit of zero is disabled.
type Limits struct {
	// ReplicaLag limits the lag of the slowest standby of the database.
	ReplicaLag time.Duration
	// LagMustBeSeen makes a lag that the role may not see exceed the limit; otherwise it is reported once.
	LagMustBeSeen bool
	// LagIgnore lists the application names of standbys whose lag does not count.
	LagIgnore []string
	// ActiveSessions limits the other active sessions of the server.
	ActiveSessions int
	// WaitingSessions limits the other sessions that wait for a lock of the database's relations or transactions, no
	// matter which session has it.
	WaitingSessions int
	// WALPerSecond limits the bytes of WAL that the server writes per second.
	WALPerSecond int64
	// RetainedWAL limits the bytes of WAL that a replication slot without a reader, or a failing archiver, keeps the
	// server from removing.
	RetainedWAL int64
	// RowsPerSecond limits the rows deleted or updated per second.
	RowsPerSecond int
	// Gentle makes small batches with pauses while other sessions are active.
	Gentle bool
	// MaxWait limits the time that a batch waits for one reason before a warning is logged.
	MaxWait time.Duration
}

// enabled reports whether a batch may have to wait.
func (l Limits) enabled() bool {
	return l.Gentle || l.ReplicaLag > 0 || l.ActiveSessions > 0 || l.WaitingSessions > 0 || l.WALPerSecond > 0 ||
		l.RetainedWAL > 0 || l.RowsPerSecond > 0
}

// Cause explains why a batch waits.
type Cause struct {
	Reason Reason // "" if the batch does not wait
	Detail string // which standby, or how many sessions; may be empty
}

func (c Cause) String() string {
	if c.Detail == "" {
		return string(c.Reason)
	}
	return string(c.Reason) + ": " + c.Detail
}

// MarshalText implements encoding.TextMarshaler: the reason, followed by the detail after a colon if there is one.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Cause) UnmarshalText(text []byte) error {
	reason, detail, _ := strings.Cut(string(text), ": ")
	*c = Cause{Reason(reason), detail}
	return nil
}

// Reason is a reason why a batch waits. The values are stored, and labels of a metric.
type Reason string

// The reasons.
const (
	Blocking        Reason = "others wait for our locks"
	HiddenLag       Reason = "replica lag cannot be seen"
	ReplicaLag      Reason = "replica lag"
	ActiveSessions  Reason = "active sessions"
	WaitingSessions Reason = "sessions waiting for locks"
	WALRate         Reason = "WAL per second"
	RetainedWAL     Reason = "retained WAL"
	RowRate         Reason = "rows per second"
	Gentle          Reason = "gentle pace"
)

// Reasons lists all the reasons for which a batch may wait.
var Reasons = []Reason{
	Blocking, HiddenLag, ReplicaLag, ActiveSessions, WaitingSessions, WALRate, RetainedWAL, RowRate, Gentle,
}

// remedies maps reasons to the settings that help where batches wait for too long.
var remedies = map[Reason]string{
	Blocking:        "a lower --batch-target shortens batches",
	HiddenLag:       "GRANT pg_monitor to the role, or set --max-replica-lag=0",
	ReplicaLag:      "raise --max-replica-lag, or exclude a standby by --lag-ignore",
	ActiveSessions:  "raise --max-active-sessions",
	WaitingSessions: "raise --max-waiting-sessions",
	WALRate:         "raise --max-wal-rate",
	RetainedWAL: "look at what reads the replication slots (pg_replication_slots) and at the archiver, " +
		"or raise --max-retained-wal",
}
