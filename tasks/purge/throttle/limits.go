package throttle

import "time"

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
	// MaxWait limits the time that a batch waits for one reason before a warning is logged.
	MaxWait time.Duration
}

// enabled reports whether a batch may have to wait.
func (l Limits) enabled() bool {
	return l.ReplicaLag > 0 || l.ActiveSessions > 0 || l.WaitingSessions > 0 || l.WALPerSecond > 0 ||
		l.RetainedWAL > 0 || l.RowsPerSecond > 0
}

// Cause explains why a batch waits.
type Cause struct {
	Reason string // one of Reasons; empty if the batch does not wait
	Detail string // which standby, or how many sessions; may be empty
}

func (c Cause) String() string {
	if c.Detail == "" {
		return c.Reason
	}
	return c.Reason + ": " + c.Detail
}

// The reasons, as reported.
const (
	blocksOthers    = "others wait for our locks"
	hiddenLag       = "replica lag can not be seen: GRANT pg_monitor"
	replicaLag      = "replica lag"
	activeSessions  = "active sessions"
	waitingSessions = "sessions waiting for locks"
	walRate         = "WAL per second"
	walRetained     = "retained WAL"
	rowRate         = "rows per second"
)

// Reasons lists all the reasons for which a batch may wait.
var Reasons = []string{
	blocksOthers, hiddenLag, replicaLag, activeSessions, waitingSessions, walRate, walRetained, rowRate,
}

// remedies maps reasons to the settings that help where batches wait for too long.
var remedies = map[string]string{
	blocksOthers:    "a lower --batch-target shortens batches",
	hiddenLag:       "GRANT pg_monitor to the role, or set --max-replica-lag=0",
	replicaLag:      "raise --max-replica-lag, or exclude a standby by --lag-ignore",
	activeSessions:  "raise --max-active-sessions",
	waitingSessions: "raise --max-waiting-sessions",
	walRate:         "raise --max-wal-rate",
	walRetained:     "drop the replication slot or repair the archiver, or raise --max-retained-wal",
}
