package tasks_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks"
)

// rule is a row on each side of every condition of a task. In the rows, OLD is just older than the cutoff of so
// many days, EDGE is the cutoff itself, YOUNG just younger, and NOW the run's clock.
type rule struct {
	task  string
	days  int
	rows  string
	query string   // of one column
	left  []string // what it answers after the run
}

const mappings = `INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sName, sBroadLogSchema, sBroadLogExclSchema, sTrackingLogSchema) VALUES
	(0, NULL, NULL, NULL, NULL), (1, 'recipients', 'nms:broadLogRcp', 'nms:excludeLogRcp', 'nms:trackingLogRcp'),
	(-2, 'stores', 'cus:broadLogStore', NULL, 'cus:trackingLogStore'), (3, 'again', 'NMS:broadlogrcp', '', 'nms:trackingLogRcp'); `

var rules = []rule{
	{"import-rejects", 180, `INSERT INTO XtkJob VALUES (0), (7), (-8);
		INSERT INTO XtkReject (iRejectId, iJobId, tsLog) VALUES (0, 99, OLD), (1, 7, OLD), (2, 7, EDGE), (3, 7, YOUNG), (4, 7, NULL), (5, 99, NULL), (6, -8, YOUNG), (7, 0, YOUNG), (-9, -99, YOUNG), (-10, 0, OLD)`,
		"SELECT iRejectId::text FROM XtkReject ORDER BY iRejectId", []string{"0", "2", "3", "4", "6", "7"}},
	{"workflow-logins", 0, `INSERT INTO XtkWorkflow VALUES (0), (7), (-8);
		INSERT INTO XtkWorkflowLogin (iWorkflowLoginId, iWorkflowId) VALUES (0, 99), (1, 7), (2, -8), (3, 0), (4, 99), (-5, -99)`,
		"SELECT iWorkflowLoginId::text FROM XtkWorkflowLogin ORDER BY 1", []string{"0", "1", "2", "3"}},
	{"visitors", 30, `INSERT INTO NmsVisitor (iVisitorId, iRecipientId, iOrigin, tsLastModified) VALUES
		(0, 0, 0, OLD), (1, 0, 0, OLD), (2, 0, 0, EDGE), (3, 0, 0, YOUNG), (4, 0, 0, NULL), (5, 1, 0, OLD), (6, 0, 1, OLD), (-7, 0, 0, OLD), (8, -1, 0, OLD)`,
		"SELECT iVisitorId::text FROM NmsVisitor ORDER BY iVisitorId", []string{"0", "2", "3", "4", "5", "6", "8"}},
	{"npai", 10, `INSERT INTO XtkOption (iOptionId, sName, tsTimeStampValue) VALUES (5, 'NmsCleanup_LastCleanup', EDGE);
		INSERT INTO NmsAddress (iAddressId, iStatus, tsLastModified) VALUES
		(0, 2, YOUNG), (1, 2, OLD), (2, 2, EDGE), (3, 2, YOUNG), (4, 2, NULL), (5, 3, YOUNG), (6, 1, YOUNG), (7, 2, NOW), (-8, 2, YOUNG)`,
		"SELECT iAddressId::text FROM NmsAddress ORDER BY iAddressId", []string{"0", "1", "4", "5", "6", "7"}},
	{"subscriptions", 0, `INSERT INTO NmsSubscription (iServiceId, iRecipientId, iDeleteStatus) VALUES (0, 0, 0), (0, 1, 1), (1, 1, 0), (1, 2, 2), (1, 3, -1), (-1, 4, 0)`,
		"SELECT iServiceId || '/' || iRecipientId FROM NmsSubscription ORDER BY 1", []string{"-1/4", "0/0", "1/1"}},
	{"tracking-logs", 360, mappings + `INSERT INTO NmsTrackingLogRcp (iTrackingLogId, tsLog) VALUES (0, OLD), (1, OLD), (2, EDGE), (3, YOUNG), (4, NULL), (-5, OLD);
		INSERT INTO CusTrackingLogStore (iTrackingLogId, tsLog) VALUES (0, OLD), (11, OLD), (12, YOUNG);
		INSERT INTO NmsWebTrackingLog (iWebTrackingLogId) VALUES (0), (1), (2), (3), (-5), (11), (12), (77);
		INSERT INTO NmsTrackingStats (iTrackingStatsId, tsStart, tsEnd) VALUES (0, OLD, NULL), (1, OLD, YOUNG), (2, EDGE, OLD), (3, NULL, OLD)`,
		`SELECT x FROM (SELECT 'log ' || iTrackingLogId AS x FROM NmsTrackingLogRcp UNION ALL SELECT 'store ' || iTrackingLogId FROM CusTrackingLogStore
		UNION ALL SELECT 'web ' || iWebTrackingLogId FROM NmsWebTrackingLog UNION ALL SELECT 'stat ' || iTrackingStatsId FROM NmsTrackingStats) q ORDER BY 1`,
		[]string{"log 0", "log 2", "log 3", "log 4", "stat 0", "stat 2", "stat 3", "store 0", "store 12", "web 0", "web 12", "web 2", "web 3", "web 77"}},
	{"delivery-logs", 180, mappings + `INSERT INTO NmsBroadLogRcp (iBroadLogId, tsLastModified) VALUES (0, OLD), (1, OLD), (2, EDGE), (3, YOUNG), (4, NULL), (-5, OLD);
		INSERT INTO NmsExcludeLogRcp (iBroadLogId, tsLastModified) VALUES (0, OLD), (1, OLD), (2, YOUNG);
		INSERT INTO CusBroadLogStore (iBroadLogId, tsLastModified) VALUES (0, OLD), (1, OLD), (2, YOUNG);
		INSERT INTO NmsBroadLogMid (iBroadLogId, tsLastModified) VALUES (0, OLD), (1, OLD), (2, YOUNG);
		INSERT INTO NmsProviderMsgId (sProviderId, tsCreated) VALUES ('', OLD), ('a', EDGE), ('b', NULL)`,
		`SELECT x FROM (SELECT 'rcp ' || iBroadLogId AS x FROM NmsBroadLogRcp UNION ALL SELECT 'excl ' || iBroadLogId FROM NmsExcludeLogRcp
		UNION ALL SELECT 'store ' || iBroadLogId FROM CusBroadLogStore UNION ALL SELECT 'mid ' || iBroadLogId FROM NmsBroadLogMid UNION ALL SELECT 'msg ' || sProviderId FROM NmsProviderMsgId) q ORDER BY 1`,
		[]string{"excl 0", "excl 2", "mid 0", "mid 2", "msg a", "msg b", "rcp 0", "rcp 2", "rcp 3", "rcp 4", "store 0", "store 2"}},
	{"email-errors", 0, `INSERT INTO NmsEmailErrorStat (iMXIP, tsDate) VALUES (0, NOW), (7, NOW), (-8, NOW);
		INSERT INTO NmsEmailError (iMXIP, iPublicId) VALUES (0, 0), (0, 1), (7, 1), (-8, 1), (9, 1), (9, 2), (-10, 0)`,
		"SELECT iMXIP || '/' || iPublicId FROM NmsEmailError ORDER BY 1", []string{"-8/1", "0/0", "0/1", "7/1"}},
	{"mx-domains", 0, `INSERT INTO NmsEmailErrorStat (iMXIP, tsDate) VALUES (7, NOW);
		INSERT INTO NmsMxDomain (iMXIP, sDomain) VALUES (0, ''), (7, 'a'), (7, 'b'), (9, 'c'), (-7, 'd')`,
		"SELECT sDomain FROM NmsMxDomain ORDER BY 1", []string{"", "a", "b"}},
	{"propositions", 360, `INSERT INTO NmsPropositionRcp (iPropositionId, tsLastModified) VALUES (0, OLD), (1, OLD), (2, EDGE), (3, NULL), (-4, OLD);
		INSERT INTO NmsPropositionVisitor (iPropositionId, tsLastModified) VALUES (0, OLD), (1, OLD), (2, YOUNG);
		CREATE TABLE nmspropositionrcp_2024 (LIKE NmsPropositionRcp INCLUDING ALL); INSERT INTO nmspropositionrcp_2024 (iPropositionId, tsLastModified) VALUES (1, OLD);
		CREATE TABLE nmspropositionother (iId integer, tsLastModified timestamptz); INSERT INTO nmspropositionother VALUES (1, OLD)`,
		`SELECT x FROM (SELECT 'rcp ' || iPropositionId AS x FROM NmsPropositionRcp UNION ALL SELECT 'visitor ' || iPropositionId FROM NmsPropositionVisitor
		UNION ALL SELECT 'copy ' || iPropositionId FROM nmspropositionrcp_2024 UNION ALL SELECT 'other ' || iId FROM nmspropositionother) q ORDER BY 1`,
		[]string{"copy 1", "other 1", "rcp 0", "rcp 2", "rcp 3", "visitor 0", "visitor 2"}},
	{"audit-trail", 180, `INSERT INTO XtkAudit (iAuditId, tsChanged) VALUES (0, OLD), (1, OLD), (2, EDGE), (3, YOUNG), (4, NULL), (-5, OLD)`,
		"SELECT iAuditId::text FROM XtkAudit ORDER BY iAuditId", []string{"0", "2", "3", "4"}},
	{"addresses", 185, `INSERT INTO NmsAddress (iAddressId, iStatus, iType, tsLastModified) VALUES
		(0, 3, 41, OLD), (1, 3, 41, OLD), (2, 3, 42, OLD), (3, 3, 0, OLD), (4, 3, 43, OLD), (5, 1, 41, OLD), (6, 3, 41, EDGE), (7, 3, 42, YOUNG), (8, 3, 41, NULL), (-9, 3, 42, OLD)`,
		"SELECT iAddressId::text FROM NmsAddress ORDER BY iAddressId", []string{"0", "3", "4", "5", "6", "7", "8"}},
	{"app-subscriptions", 180, `INSERT INTO NmsService VALUES (0), (7); INSERT INTO NmsMobileApp VALUES (0), (8);
		INSERT INTO NmsAppSubscriptionRcp (iAppSubscriptionRcpId, iServiceId, iMobileAppId, iDisabled, tsLastModified) VALUES
		(0, 99, 99, 1, OLD), (1, 7, 8, 0, OLD), (2, 7, 8, 1, OLD), (3, 7, 8, 1, EDGE), (4, 7, 8, 1, NULL), (5, 99, 8, 0, YOUNG), (6, 7, 99, 0, YOUNG), (7, 0, 0, 0, YOUNG), (8, 0, 0, 2, OLD), (-9, 99, 99, 0, NULL);
		CREATE TABLE nmsappsubscriptionnot (iMobileAppId integer); INSERT INTO nmsappsubscriptionnot VALUES (99)`,
		`SELECT x FROM (SELECT iAppSubscriptionRcpId::text AS x FROM NmsAppSubscriptionRcp UNION ALL SELECT 'not ' || iMobileAppId FROM nmsappsubscriptionnot) q ORDER BY 1`,
		[]string{"0", "1", "3", "4", "7", "8", "not 99"}},
	{"sessions", 0, `INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('0', OLD), ('a', OLD), ('b', NOW), ('c', YOUNG), ('d', NULL)`,
		"SELECT sKey FROM XtkSessionInfo ORDER BY 1", []string{"b", "c", "d"}},
	{"expired-events", 30, `INSERT INTO NmsRtEvent (iRtEventId, tsLastModified) VALUES (0, OLD), (1, OLD), (2, EDGE), (3, NULL);
		INSERT INTO NmsBatchEvent (iBatchEventId, tsLastModified, tsCreated) VALUES (0, OLD, OLD), (-1, OLD, NULL), (2, YOUNG, OLD);
		INSERT INTO NmsEventHisto (biEventHistoId, tsLastModified) VALUES (0, OLD), (1, OLD), (2, timestamptz '2026-03-01 12:00Z' - interval '8640 hours 1 second'), (3, timestamptz '2026-03-01 12:00Z' - interval '8640 hours')`,
		`SELECT x FROM (SELECT 'rt ' || iRtEventId AS x FROM NmsRtEvent UNION ALL SELECT 'batch ' || iBatchEventId FROM NmsBatchEvent UNION ALL SELECT 'histo ' || biEventHistoId FROM NmsEventHisto) q ORDER BY 1`,
		[]string{"batch 0", "batch 2", "histo 0", "histo 1", "histo 3", "rt 0", "rt 2", "rt 3"}},
	{"reactions", 0, `INSERT INTO NmsRemaHypothesis VALUES (0), (7); INSERT INTO NmsRemaMatchRcp (iHypothesisId, iBroadLogId) VALUES (0, 1), (7, 2), (99, 3), (99, 3), (-7, 4)`,
		"SELECT iBroadLogId::text FROM NmsRemaMatchRcp ORDER BY 1", []string{"1", "2"}},
}

// sql is the rule's rows with their dates.
func (r rule) sql() string {
	cutoff := now.Add(-time.Duration(r.days) * 24 * time.Hour)
	text := r.rows
	for word, moment := range map[string]time.Time{"OLD": cutoff.Add(-time.Microsecond), "EDGE": cutoff, "YOUNG": cutoff.Add(time.Microsecond), "NOW": now} {
		text = regexp.MustCompile(`\b`+word+`\b`).ReplaceAllString(text, "'"+moment.Format(time.RFC3339Nano)+"'")
	}
	return text
}

func TestRules(t *testing.T) {
	t.Parallel()
	for _, r := range rules {
		for _, maxRows := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s/%d", r.task, maxRows), func(t *testing.T) {
				t.Parallel()
				db := pgtest.Campaign(t)
				db.Do(r.sql())
				before := db.Strings(r.query)
				expected := mustRun(t, db, dry, r.task).deleted[r.task]
				if got := db.Strings(r.query); !slices.Equal(got, before) {
					t.Errorf("a dry run changed\n%v to\n%v", before, got)
				}
				j := mustRun(t, db, func(c *tasks.Config) { c.MaxRows = maxRows }, r.task)
				if got := db.Strings(r.query); !slices.Equal(got, r.left) {
					t.Errorf("left\n%v, want\n%v", got, r.left)
				}
				if gone := int64(len(before) - len(r.left)); j.deleted[r.task] != gone || expected != gone {
					t.Errorf("%d rows went, %d were accounted for, a dry run expected %d", gone, j.deleted[r.task], expected)
				}
				if j.states[r.task] != tasks.Succeeded {
					t.Errorf("the task is %s: %s", j.states[r.task], j.problems[r.task])
				}
				for _, b := range j.batches {
					if maxRows > 0 && b.Deleted > 2 { // a row and its twin
						t.Errorf("a batch of %d rows", b.Deleted)
					}
				}
				if again := mustRun(t, db, nil, r.task); again.deleted[r.task] != 0 || !slices.Equal(db.Strings(r.query), r.left) {
					t.Errorf("a second run deleted %d rows", again.deleted[r.task])
				}
			})
		}
	}
}

// Dates without a zone are read in the zone of the database, here one in which a day begins five hours later.
func TestRulesWithTimestampsWithoutZone(t *testing.T) {
	t.Parallel()
	for _, r := range rules {
		t.Run(r.task, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Superuser(fmt.Sprintf("ALTER DATABASE %s SET timezone = 'America/Bogota'", db.Name))
			db.Reset()
			for _, alter := range db.Strings(`SELECT format('ALTER TABLE %s ALTER COLUMN %I TYPE timestamp', attrelid::regclass, attname) FROM pg_attribute
				JOIN pg_class c ON c.oid = attrelid WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND atttypid = 'timestamptz'::regtype`) {
				db.Do(alter)
			}
			db.Do(strings.ReplaceAll(regexp.MustCompile(`'\d{4}-[^']*Z'`).ReplaceAllString(r.sql(), "($0::timestamptz::timestamp)"), "timestamptz (", "("))
			j := mustRun(t, db, nil, r.task)
			if got := db.Strings(r.query); !slices.Equal(got, r.left) {
				t.Errorf("left\n%v, want\n%v\n%s", got, r.left, strings.Join(j.logs, "\n"))
			}
		})
	}
}

// Every task copes with a database in which each table it reads is missing in turn.
func TestMissingTables(t *testing.T) {
	t.Parallel()
	for _, r := range rules {
		t.Run(r.task, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(r.sql())
			inserted := regexp.MustCompile(`INSERT INTO (\w+)`).FindAllStringSubmatch(r.rows, -1)
			for _, match := range inserted {
				db.Do("DROP TABLE IF EXISTS " + match[1])
				j := mustRun(t, db, nil, r.task)
				if state := j.states[r.task]; state != tasks.Succeeded && state != tasks.Skipped {
					t.Errorf("without %s the task is %s", match[1], state)
				}
			}
		})
	}
}
