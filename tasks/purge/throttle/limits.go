package throttle

import (
	"strings"
	"time"
)

// Limits limit the server's load. While it exceeds one of them, batches wait before they begin; 0 disables a limit.
type Limits struct {
	// ReplicaLag is the lag of the database's slowest standby.
	ReplicaLag time.Duration
	// LagMustBeSeen makes batches wait if the role cannot see the lag. Otherwise a warning is logged once.
	LagMustBeSeen bool
	// LagIgnore are the application names of standbys whose lag does not count.
	LagIgnore []string
	// ActiveSessions is the number of other active sessions on the server.
	ActiveSessions int
	// WaitingSessions is the number of other sessions that wait for a lock on a relation, row or transaction of the
	// database, whichever session has the lock.
	WaitingSessions int
	// WALPerSecond is in bytes.
	WALPerSecond int64
	// RetainedWAL is how many bytes of WAL the server cannot remove because of a replication slot without a reader, or
	// a failing archiver.
	RetainedWAL   int64
	RowsPerSecond int
	// Gentle means small batches with pauses while other sessions are active.
	Gentle bool
	// MaxWait is how long a batch waits for one reason before a warning is logged; 0 disables the warning.
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

// MarshalText returns the reason, followed by a colon and the detail if there is one.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func (c *Cause) UnmarshalText(text []byte) error {
	reason, detail, _ := strings.Cut(string(text), ": ")
	*c = Cause{Reason(reason), detail}
	return nil
}

// Reason is why a batch waits. The values are stored, and are labels of a metric.
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

// remedies are the settings that help if batches wait for too long.
var remedies = map[Reason]string{
	Blocking:        "at the pace gentle, batches are shorter",
	HiddenLag:       "GRANT pg_monitor to the role, or set --max-replica-lag=0",
	ReplicaLag:      "raise --max-replica-lag, or exclude a standby by --lag-ignore",
	ActiveSessions:  "raise --max-active-sessions",
	WaitingSessions: "raise --max-waiting-sessions",
	WALRate:         "raise --max-wal-rate",
	RetainedWAL: "check what reads the replication slots (pg_replication_slots), and the archiver, " +
		"or raise --max-retained-wal",
}
