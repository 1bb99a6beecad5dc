package throttle

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// load is a sample of the server's load. Other sessions are those with another application_name.
type load struct {
	database string
	active   int64         // other sessions that are active
	idle     bool          // all other sessions have been inactive for half a second
	waiting  int64         // other sessions of this database that wait for a lock on a relation, row or transaction
	blocked  int64         // other sessions that wait for a lock of this service
	standbys []standbyLoad // standbys that stream from the server, with the slowest first
	hidden   bool          // the role cannot see the lag of standbys
	wal      int64         // the server's position in the WAL, in bytes
	recovery bool          // the server is a standby
}

type standbyLoad struct {
	PID      int32         // the process that sends WAL to the standby
	Name     string        // its application_name, or else its address
	Replay   time.Duration // the time from sending WAL until its effect is visible; 0 if the standby only stores WAL
	Flush    time.Duration // the time from sending WAL until the standby has stored it
	Position int64         // up to where the standby has replayed WAL, in bytes
}

// loadSQL samples the server's load, also for a role with few rights. A session that is hidden from the role counts
// as active, and its locks are read from pg_locks, which is expensive. WAL senders that have a database belong to
// logical replication, whose readers confirm when they like. A receiver without a replay position, such as
// pg_receivewal, only stores WAL, and its replay lag grows without end. Sessions that wait for locks on anything
// but relations, rows and transactions do not count: they wait for each other, or only briefly. The functions
// behind pg_stat_activity and pg_stat_replication take a quarter of the time of the views, which also look up
// names.
const loadSQL = `
WITH sessions AS MATERIALIZED (SELECT pid, datid, usesysid, application_name, client_addr, backend_type, state,
  state_change, wait_event_type, wait_event FROM pg_stat_get_activity(NULL)),
others AS (SELECT * FROM sessions
  WHERE COALESCE(backend_type, 'client backend') = 'client backend' AND datid IS NOT NULL AND usesysid IS NOT NULL
    AND pid <> pg_backend_pid() AND application_name <> current_setting('application_name')),
waits AS MATERIALIZED (SELECT pid, wait_event FROM others WHERE wait_event_type = 'Lock'
  UNION ALL SELECT pid, locktype FROM pg_locks JOIN others USING (pid)
  WHERE NOT granted AND state IS NULL AND EXISTS (SELECT FROM others WHERE state IS NULL)),
here AS (SELECT oid FROM pg_database WHERE datname = current_database()),
senders AS (SELECT s.*, COALESCE(NULLIF(a.application_name, ''), host(a.client_addr), 'unnamed') AS name
  FROM pg_stat_get_wal_senders() s JOIN sessions a USING (pid) WHERE a.datid IS NULL),
standbys AS (SELECT pid, name, CASE WHEN replay_lsn IS NULL THEN 0
      ELSE (COALESCE(extract(epoch FROM replay_lag), 0) * 1000000000)::bigint END AS replay,
    (COALESCE(extract(epoch FROM flush_lag), 0) * 1000000000)::bigint AS flush,
    COALESCE(replay_lsn - '0/0', 0)::bigint AS position
  FROM senders WHERE NOT name = ANY ($1::text[]))
SELECT current_database(), (SELECT count(*) FROM others WHERE state = 'active'),
  NOT EXISTS (SELECT FROM others WHERE (state <> 'active' AND state_change < now() - interval '500 ms') IS NOT TRUE),
  (SELECT count(*) FROM waits JOIN others USING (pid) WHERE waits.wait_event IN ('relation', 'tuple', 'transactionid')
    AND datid = (SELECT oid FROM here)),
  (SELECT count(*) FROM waits WHERE pg_blocking_pids(pid) &&
    ARRAY(SELECT pid FROM sessions WHERE datid = (SELECT oid FROM here)
      AND application_name = current_setting('application_name'))),
  COALESCE((SELECT json_agg(s ORDER BY s.replay DESC, s.name) FROM standbys s), '[]'),
  EXISTS (SELECT FROM standbys) AND NOT pg_has_role('pg_read_all_stats', 'USAGE'),
  (CASE
    WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END - '0/0')::bigint,
    pg_is_in_recovery()`

func sampleLoad(ctx context.Context, pool *pgxpool.Pool, ignore []string) (load, error) {
	var l load
	if ignore == nil {
		ignore = []string{}
	}
	if err := pool.QueryRow(ctx, loadSQL, ignore).Scan(
		&l.database, &l.active, &l.idle, &l.waiting, &l.blocked, &l.standbys, &l.hidden, &l.wal, &l.recovery,
	); err != nil {
		return load{}, fmt.Errorf("sample the server's load: %w", err)
	}
	return l, nil
}
