package tasks_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/pipeline"
)

// similarTables has tables that resemble the tables of the four tasks with families, and the tasks. Each table has an
// old row.
var similarTables = map[string]string{
	"nmsbroadlogeventhisto":    "delivery-logs",
	"nmstrackinglogeventhisto": "tracking-logs",
	"nmspropositionrcp_2024":   "propositions",
	"cuspropositionstore":      "propositions",
	"cusappsubscriptionstore":  "app-subscriptions",
}

const createSimilarTables = `INSERT INTO NmsBroadLogEventHisto (iBroadLogId, tsLastModified)
	VALUES (0, '2000-01-01'), (1, '2000-01-01');
	INSERT INTO NmsTrackingLogEventHisto (iTrackingLogId, tsLog) VALUES (0, '2000-01-01'), (1, '2000-01-01');
		INSERT INTO NmsWebTrackingLog (iWebTrackingLogId) VALUES (1);
	CREATE TABLE nmspropositionrcp_2024 AS SELECT 1 AS iPropositionId, '2000-01-01'::timestamptz AS tsLastModified;
	CREATE TABLE CusPropositionStore AS
		SELECT 1::bigint AS biPropositionId, '2000-01-01'::timestamptz AS tsLastModified;
	CREATE TABLE CusAppSubscriptionStore AS
		SELECT 1 AS iMobileAppId, 1 AS iDisabled, '2000-01-01'::timestamptz AS tsLastModified;
	CREATE TABLE wkf1_5 AS SELECT * FROM CusPropositionStore; CREATE TABLE CusLogWithoutKey (LIKE NmsBroadLogRcp);
		CREATE TABLE CusOther (iPropositionId integer)`

const rowsLeft = `SELECT x FROM (SELECT 'nmsbroadlogeventhisto' AS x FROM NmsBroadLogEventHisto WHERE iBroadLogId <> 0
	UNION ALL SELECT 'nmstrackinglogeventhisto' FROM NmsTrackingLogEventHisto WHERE iTrackingLogId <> 0
	UNION ALL SELECT 'nmspropositionrcp_2024' FROM nmspropositionrcp_2024 UNION ALL SELECT 'cuspropositionstore'
		FROM CusPropositionStore UNION ALL SELECT 'cusappsubscriptionstore' FROM CusAppSubscriptionStore) q ORDER BY 1`

// A table that resembles those a task cleans, but that no mapping names, is logged once and not cleaned.
func TestLookAlikesAreTold(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(mappings + createSimilarTables)
	j := mustRun(t, db, nil, "deliveries", "tracking-logs", "delivery-logs", "propositions", "app-subscriptions")
	if left := db.Strings(rowsLeft); len(left) != len(similarTables) {
		t.Errorf("the tables with rows are %q, want %d", left, len(similarTables))
	}
	for table, task := range similarTables {
		hints := 0
		for _, line := range j.logs {
			if strings.HasPrefix(line, "INFO table "+table+" ") && strings.Contains(line, "--include "+task+"="+table) {
				hints++
			}
		}
		if hints != 1 {
			t.Errorf("%d hints at %s, want 1: %q", hints, table, j.logs)
		}
	}
	for _, other := range []string{
		"nmsbroadlogrcp", "nmsexcludelogrcp", "cusbroadlogstore", "nmsbroadlogmid", "nmstrackinglogrcp",
		"nmspropositionrcp", "nmsappsubscriptionrcp", "wkf1_5", "cuslogwithoutkey", "cusother", "nmsprovidermsgid",
	} {
		j.checkNoLog(t, "table "+other+" looks like")
	}
}

// An included table is cleaned only by the rule of its task.
func TestIncludedTables(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		mappings + createSimilarTables + `; INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete)
			VALUES (5, 1, '2000-01-01');
		INSERT INTO NmsBroadLogEventHisto (iBroadLogId, iDeliveryId, tsLastModified) VALUES (2, 5, '2026-03-01')`,
	)
	include := map[string][]string{
		"delivery-logs": {"nmsbroadlogeventhisto", "nmsbroadlogrcp"},
		"propositions":  {"cusgone"},
	}
	for table, task := range similarTables {
		include[task] = append(include[task], table)
	}
	with := func(c *pipeline.Config) { c.Include = include }
	j := mustRun(t, db, func(c *pipeline.Config) { c.Include, c.DryRun = include, true }, "delivery-logs")
	j.checkDeleted(t, "delivery-logs", 1)
	j = mustRun(t, db, with, "deliveries", "tracking-logs", "delivery-logs", "propositions", "app-subscriptions")
	if left := db.Strings(rowsLeft); !slices.Equal(left, []string{"nmsbroadlogeventhisto"}) { // its row is young
		t.Errorf("the tables with rows are %q, want the young row alone: %q", left, j.logs)
	}
	checkCount(t, db, 1, "SELECT count(*) FROM NmsWebTrackingLog")
	checkCount(t, db, 0, "SELECT count(*) FROM NmsDelivery")
	j.checkDeleted(t, "delivery-logs", 1)
	j.checkNoLog(t, "table nmsbroadlogeventhisto looks like")
	j.checkLog(t, "WARNING", "cusgone", "missing")
}
