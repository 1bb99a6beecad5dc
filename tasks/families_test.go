package tasks_test

import (
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// similarTables has tables that resemble the tables of the four tasks with families, and their dates. Each table has
// an old row.
var similarTables = map[string]string{
	"nmsbroadlogeventhisto":    "tsLastModified",
	"nmstrackinglogeventhisto": "tsLog",
	"nmspropositionrcp_2024":   "tsLastModified",
	"cuspropositionstore":      "tsLastModified",
	"cusappsubscriptionstore":  "tsLastModified",
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
	for table, date := range similarTables {
		hints, policy := 0, "run --older-than "+table+"."+date+"=AGE"
		for _, line := range j.logs {
			if strings.HasPrefix(line, "INFO skipped "+table+": ") && strings.HasSuffix(line, policy) {
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
