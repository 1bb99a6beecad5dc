package purge

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// load is a sample of the server's load. Other sessions are those with another application_name.
type load struct {
	active   int64         // other sessions that are active
	idle     bool          // all other sessions have been inactive for half a second
	waiting  int64         // other sessions of this database that wait for a lock of a relation or a transaction
	forUs    int64         // other sessions that wait for locks of ours
	standbys []standbyLoad // standbys that stream from the server
	hidden   bool          // the role may not see how far standbys are behind
	wal      int64         // the position in the WAL, in bytes
	recovery bool          // the server is a standby
}

// standbyLoad is how far a standby is behind, as far as the server knows.
type standbyLoad struct {
	name   string        // its application_name
	replay time.Duration // until what it has received is visible there
	flush  time.Duration // until it has received it
}

// loadSQL samples the server's load; it works for a role that may see little, too. A session that the role may not see
// counts as active. Senders that have a database are those of logical replication, whose readers confirm when they
// please; sessions that wait for advisory locks wait for each other. It calls the functions behind pg_stat_activity and
// pg_stat_replication, since the views also look up names, which takes four times as long.
const loadSQL = `
WITH sessions AS MATERIALIZED (SELECT pid, datid, usesysid, application_name, backend_type, state, state_change,
  wait_event_type, wait_event FROM pg_stat_get_activity(NULL)),
others AS (SELECT * FROM sessions
  WHERE COALESCE(backend_type, 'client backend') = 'client backend' AND datid IS NOT NULL AND usesysid IS NOT NULL
    AND pid <> pg_backend_pid() AND application_name <> current_setting('application_name')),
here AS (SELECT oid FROM pg_database WHERE datname = current_database()),
standbys AS (SELECT a.application_name AS name, (COALESCE(extract(epoch
  FROM s.replay_lag), 0) * 1000000)::bigint AS replay, (COALESCE(extract(epoch
  FROM s.flush_lag), 0) * 1000000)::bigint AS flush
  FROM pg_stat_get_wal_senders() s JOIN sessions a USING (pid) WHERE a.datid IS NULL
    AND NOT a.application_name = ANY ($1::text[]))
SELECT (SELECT count(*) FROM others WHERE state = 'active'),
  NOT EXISTS (SELECT FROM others WHERE (state <> 'active' AND state_change < now() - interval '500 ms') IS NOT TRUE),
  (SELECT count(*) FROM others WHERE wait_event_type = 'Lock' AND wait_event NOT IN ('advisory', 'userlock')
    AND datid = (SELECT oid FROM here)),
  (SELECT count(*) FROM others WHERE wait_event_type = 'Lock' AND pg_blocking_pids(pid) &&
    ARRAY(SELECT pid FROM sessions WHERE datid = (SELECT oid FROM here)
      AND application_name = current_setting('application_name'))),
  ARRAY(SELECT name FROM standbys ORDER BY replay DESC, name), ARRAY(SELECT replay FROM standbys
    ORDER BY replay DESC, name), ARRAY(SELECT flush FROM standbys ORDER BY replay DESC, name),
  EXISTS (SELECT FROM standbys) AND NOT pg_has_role('pg_read_all_stats', 'USAGE'),
  (CASE
    WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END - '0/0')::bigint,
    pg_is_in_recovery()`

// sampleLoad returns the server's load, without the standbys to ignore.
func sampleLoad(ctx context.Context, pool *pgxpool.Pool, ignore []string) (load, error) {
	var (
		l             load
		names         []string
		replay, flush []int64 // microseconds
	)
	if ignore == nil {
		ignore = []string{}
	}
	err := pool.QueryRow(ctx, loadSQL, ignore).
		Scan(&l.active, &l.idle, &l.waiting, &l.forUs, &names, &replay, &flush, &l.hidden, &l.wal, &l.recovery)
	if err != nil {
		return load{}, fmt.Errorf("sample the server's load: %w", err)
	}
	for i, name := range names {
		l.standbys = append(
			l.standbys,
			standbyLoad{name, time.Duration(replay[i]) * time.Microsecond, time.Duration(flush[i]) * time.Microsecond},
		)
	}
	return l, nil
}
