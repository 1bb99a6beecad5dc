package throttle

import (
	"strings"
	"time"
)

// Above a limit, a batch waits before it begins. 0 disables a limit.
type Limits struct {
	// Of the slowest standby of the database.
	ReplicaLag time.Duration
	// LagMustBeSeen makes a lag that the role may not see exceed the limit; otherwise it is reported once.
	LagMustBeSeen bool
	// Application names of standbys whose lag does not count.
	LagIgnore []string
	// Other active sessions of the server.
	ActiveSessions int
	// Other sessions that wait for a lock of the database's relations or transactions, whichever session has it.
	WaitingSessions int
	// In bytes.
	WALPerSecond int64
	// Bytes that a replication slot without a reader, or a failing archiver, keeps the server from removing.
	RetainedWAL   int64
	RowsPerSecond int
	// Gentle: small batches with pauses while other sessions are active.
	Gentle bool
	// How long a batch waits for one reason before a warning is logged.
	MaxWait time.Duration
}

func (l Limits) enabled() bool {
	return l.Gentle || l.ReplicaLag > 0 || l.ActiveSessions > 0 || l.WaitingSessions > 0 || l.WALPerSecond > 0 ||
		l.RetainedWAL > 0 || l.RowsPerSecond > 0
}

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

// The reason, followed by the detail after a colon if there is one.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func (c *Cause) UnmarshalText(text []byte) error {
	reason, detail, _ := strings.Cut(string(text), ": ")
	*c = Cause{Reason(reason), detail}
	return nil
}

// The values are stored, and labels of a metric.
type Reason string

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

var Reasons = []Reason{
	Blocking, HiddenLag, ReplicaLag, ActiveSessions, WaitingSessions, WALRate, RetainedWAL, RowRate, Gentle,
}

// The settings that help where batches wait for too long.
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
