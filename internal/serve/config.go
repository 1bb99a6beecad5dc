package serve

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/serve/targets"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/notify"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

type Config struct {
	DatabaseURL      string
	GRPCListen       string
	HTTPListen       string
	Profile          runs.Profile // which tasks the database has
	Forms            FormsConfig
	standbyURL       string // empty if dry runs read the database itself
	lease            time.Duration
	schedule         bool
	databaseWait     time.Duration // how long to wait for databases that cannot be reached at the start
	published        bool          // whether the schema may be published
	history          time.Duration
	planMaxAge       time.Duration
	instance         string
	batches          purge.Settings
	midSourcing      []string // NAME=URL or NAME=keep
	vacuumTruncate   bool
	retainedWALGiven bool // whether --max-retained-wal was given
	access           accessConfig
	notify           targets.Config
	notifyBounds     notify.Bounds
	pace             pace.Pace
	maxPause         time.Duration
	console          bool
	inProcess        bool                  // no ports, and the name of the service is the stored one unless it is given
	created          func(database string) // is told if the schema cleanupd was created; may be nil
	tracer           pgx.QueryTracer       // for all databases except that of Forms; nil without tracing
	formsTracer      pgx.QueryTracer
}

func DefaultConfig() Config {
	return Config{
		GRPCListen:   "127.0.0.1:9090",
		HTTPListen:   "127.0.0.1:8080",
		Profile:      runs.ProfileAuto,
		lease:        runs.DefaultLease,
		console:      true,
		history:      runs.DefaultHistory,
		planMaxAge:   runs.DefaultPlanMaxAge,
		notifyBounds: notify.DefaultBounds,
		pace:         pace.Balanced,
		maxPause:     runs.DefaultMaxPause,
		batches: purge.Settings{
			Target:  purge.DefaultTarget,
			Workers: runs.DefaultWorkers,
			// rows and their counts in the ledger are lost together, if at all
			SynchronousCommit: "off",
			Limits: purge.Limits{
				ReplicaLag:      10 * time.Second,
				ActiveSessions:  50,
				WaitingSessions: 10,
				RetainedWAL:     10 << 30,
				MaxWait:         10 * time.Minute,
			},
		},
	}
}

func ConfigOnFreePorts(databaseURL string) Config {
	c := DefaultConfig()
	c.DatabaseURL, c.GRPCListen, c.HTTPListen = databaseURL, "127.0.0.1:0", "127.0.0.1:0"
	return c
}

// validConfig is a Config that was checked and parsed.
type validConfig struct {
	database    *pgxpool.Config
	standby     *pgxpool.Config            // nil if dry runs read the database itself
	midSourcing map[string]*pgxpool.Config // databases by the names of external accounts
	keep        []string                   // the external accounts whose deliveries are kept
	forms       *validForms                // nil without a Forms database
	targets     []*notify.Target           // the targets of notifications
}

// check returns an error with all mistakes that can be found without connecting.
func (c *Config) check() (v validConfig, err error) {
	var errs [6]error
	v.database, errs[0] = flags.DatabaseURL("--database-url", c.DatabaseURL)
	v.midSourcing, v.keep, errs[1] = parseMidSourcing(c.midSourcing)
	v.forms, errs[2] = c.Forms.check()
	errs[3] = c.access.check()
	v.standby, errs[4] = parseStandby(c.standbyURL)
	v.targets, errs[5] = c.notify.Parse()
	return v, errors.Join(append(
		errs[:], flags.CheckAddress("--grpc-listen", c.GRPCListen), flags.CheckAddress("--http-listen", c.HTTPListen),
		checkRange("--lease", c.lease, time.Second, math.MaxInt64),
		checkRange("--wait-for-database", c.databaseWait, 0, 24*time.Hour),
		checkRange("--history", c.history, time.Second, math.MaxInt64),
		checkRange("--plan-max-age", c.planMaxAge, time.Minute, math.MaxInt64),
		checkRange("--max-pause", c.maxPause, time.Minute, math.MaxInt64), checkInstance(c.instance),
		checkRange("--workers", c.batches.Workers, 1, 16), checkSynchronousCommit(c.batches.SynchronousCommit),
		checkLimits(c.batches.Limits), targets.CheckBounds(c.notifyBounds),
	)...)
}

func checkSynchronousCommit(value string) error {
	if !slices.Contains(purge.SynchronousCommits, value) {
		return flags.Errorf("--synchronous-commit must be %s, not %q", strings.Join(purge.SynchronousCommits, ", "),
			value)
	}
	return nil
}

func checkRange[T int | int64 | time.Duration](flag string, value, least, most T) error {
	switch {
	case value >= least && value <= most:
		return nil
	case most == math.MaxInt64:
		return flags.Errorf("%s must be %v or more, not %v", flag, least, value)
	}
	return flags.Errorf("%s must be %v to %v, not %v", flag, least, most, value)
}

func checkLimits(l purge.Limits) error {
	return errors.Join(checkRange("--max-replica-lag", l.ReplicaLag, 0, math.MaxInt64),
		checkRange("--max-active-sessions", l.ActiveSessions, 0, math.MaxInt64),
		checkRange("--max-waiting-sessions", l.WaitingSessions, 0, math.MaxInt64),
		checkRange("--max-wal-rate", l.WALPerSecond, 0, math.MaxInt64),
		checkRange("--max-retained-wal", l.RetainedWAL, 0, math.MaxInt64),
		checkRange("--max-wait", l.MaxWait, 0, math.MaxInt64),
		checkRange("--max-rows-per-second", l.RowsPerSecond, 0, math.MaxInt64))
}
