package tasks_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/execute"
)

// rule is a row on each side of every condition of a task. In the rows, OLD is just older than the cutoff of a number
// of days, EDGE is the cutoff itself, YOUNG just younger, and NOW the run's clock.
type rule struct {
	task  string
	days  int
	rows  string
	query string   // of one column
	left  []string // its result after the run
}

const mappings = `INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sName, sBroadLogSchema, sBroadLogExclSchema, sTrackingLogSchema) VALUES
	(0, NULL, NULL, NULL, NULL), (1, 'recipients', 'nms:broadLogRcp', 'nms:excludeLogRcp', 'nms:trackingLogRcp'),
	(-2, 'stores', 'cus:broadLogStore', NULL, 'cus:trackingLogStore'), (3, 'again', 'NMS:broadlogrcp', '', 'nms:trackingLogRcp'); `

var rules = []rule{
	{"lists-to-delete", 0, `INSERT INTO NmsGroup (iGroupId, iType, iDeleteStatus, tsExpirationDate) VALUES
			(0, 0, 1, OLD), (1, 0, 1, NULL), (2, 0, 0, NOW), (3, 0, 0, YOUNG), (4, 0, 0, NULL), (5, 1, 2, YOUNG), (-6, 1, 0, OLD), (7, 1, 0, NULL), (8, 0, 1, NULL), (9, 1, 1, NULL);
		INSERT INTO NmsRcpGrpRel SELECT iGroupId, 100 FROM NmsGroup; INSERT INTO NmsRcpGrpRel VALUES (99, 1);
		INSERT INTO XtkOperatorGroup VALUES (1, 1), (1, 2);
		CREATE TABLE CusListNote (iId integer, iGroupId integer REFERENCES NmsGroup (iGroupId)); INSERT INTO CusListNote VALUES (1, 1), (2, 3), (3, NULL);
		CREATE TABLE CusListOwner (iId integer, iOwnedGroup integer REFERENCES NmsGroup (iGroupId)); INSERT INTO CusListOwner VALUES (1, 8);
		CREATE TABLE grp5 (i int); CREATE TABLE grp4294967290 (i int); CREATE TABLE grp7 (i int); CREATE TABLE grp8 (i int); CREATE TABLE grp9 (i int); CREATE VIEW stands_on_grp9 AS SELECT * FROM grp9`,
		`SELECT x FROM (SELECT 'list ' || iGroupId AS x FROM NmsGroup UNION ALL SELECT 'rel ' || iGroupId FROM NmsRcpGrpRel UNION ALL SELECT 'operator ' || iGroupId FROM XtkOperatorGroup
		UNION ALL SELECT 'note ' || iId FROM CusListNote UNION ALL SELECT 'owner ' || iId FROM CusListOwner UNION ALL SELECT relname::text FROM pg_class WHERE relname LIKE 'grp%' AND relkind = 'r') q ORDER BY 1`,
		[]string{"grp7", "grp8", "grp9", "list 0", "list 3", "list 4", "list 7", "list 8", "list 9", "note 2", "note 3", "operator 1", "operator 2", "owner 1", "rel 0", "rel 3", "rel 4", "rel 7", "rel 99"}},
	{"deliveries", 7, mappings + `INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, tsLastModified, iState) VALUES
			(0, 1, OLD, OLD, 95), (1, 1, OLD, NOW, 55), (2, 2, NULL, OLD, 95), (3, 1, EDGE, OLD, 95), (4, 1, YOUNG, OLD, 95), (5, 0, OLD, OLD, 95), (6, 1, NULL, NULL, 95), (-7, 2, OLD, NULL, 75), (8, 1, NULL, EDGE, 55);
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId) VALUES (0, 1), (1, 1), (2, 2), (3, 3), (4, 0), (-5, -7);
		INSERT INTO NmsExcludeLogRcp (iBroadLogId, iDeliveryId) VALUES (11, 1), (12, 5);
		INSERT INTO CusBroadLogStore (iBroadLogId, iDeliveryId) VALUES (21, 2), (22, 4);
		INSERT INTO NmsBroadLogMid (iBroadLogId, iDeliveryId) VALUES (31, -7), (32, 99);
		INSERT INTO NmsCouponValue (iCouponId, sCouponCode, iMessageId) VALUES (1, 'a', 1), (1, 'b', 3), (1, 'c', 0), (1, 'd', 11), (1, 'e', 22), (1, 'f', -5), (1, 'g', 77);
		INSERT INTO NmsDlvExclusion (iDeliveryId, iTypologyRuleId) VALUES (1, 1), (1, 2), (3, 1), (0, 1);
		INSERT INTO NmsPropositionRcp (iPropositionId, iDeliveryId) VALUES (0, 1), (1, 1), (2, 3), (3, 0);
		INSERT INTO NmsTrackingLogRcp (iTrackingLogId, iDeliveryId) VALUES (1, 1), (2, 3); INSERT INTO NmsWebTrackingLog (iWebTrackingLogId, iDeliveryId) VALUES (1, 1), (2, 3), (3, 2);
		INSERT INTO NmsTrackingStats (iTrackingStatsId, iDeliveryId) VALUES (1, 1), (2, 3); INSERT INTO NmsDeliveryPart (iDeliveryPartId, iDeliveryId) VALUES (1, 1), (2, 3);
		INSERT INTO NmsMirrorPageInfo (iMirrorPageInfoId, iDeliveryId) VALUES (1, 1), (2, 3); INSERT INTO NmsMirrorPageSearch (iMessageId, iDeliveryId) VALUES (1, 1), (2, 3);
		INSERT INTO XtkJobLog (iJobLogId, iJobId) VALUES (0, 1), (1, 1), (2, 3); INSERT INTO NmsAttachments (iAttachmentId, iDeliveryId) VALUES (1, 2), (2, 3);
		INSERT INTO NmsProviderMsgId (sProviderId, iDeliveryId) VALUES ('1', 1), ('2', 3); INSERT INTO NmsDeliveryStat VALUES (1, NOW), (3, NOW); INSERT INTO NmsDeliveryLogStats VALUES (1, 1), (3, 2);
		INSERT INTO NmsTrackingUrl (iTrackingUrlId, iDeliveryId) VALUES (1, 1), (2, 3);
		CREATE TABLE NmsOther (iDeliveryId integer); INSERT INTO NmsOther VALUES (1)`,
		`SELECT x FROM (SELECT 'delivery ' || iDeliveryId || ' ' || iState AS x FROM NmsDelivery UNION ALL SELECT 'rcp ' || iBroadLogId FROM NmsBroadLogRcp UNION ALL SELECT 'excl ' || iBroadLogId FROM NmsExcludeLogRcp
		UNION ALL SELECT 'store ' || iBroadLogId FROM CusBroadLogStore UNION ALL SELECT 'mid ' || iBroadLogId FROM NmsBroadLogMid UNION ALL SELECT 'coupon ' || sCouponCode FROM NmsCouponValue
		UNION ALL SELECT 'rule ' || iDeliveryId || iTypologyRuleId FROM NmsDlvExclusion UNION ALL SELECT 'prop ' || iPropositionId FROM NmsPropositionRcp UNION ALL SELECT 'track ' || iTrackingLogId FROM NmsTrackingLogRcp
		UNION ALL SELECT 'web ' || iWebTrackingLogId FROM NmsWebTrackingLog UNION ALL SELECT 'stats ' || iTrackingStatsId FROM NmsTrackingStats UNION ALL SELECT 'part ' || iDeliveryPartId FROM NmsDeliveryPart
		UNION ALL SELECT 'page ' || iMirrorPageInfoId FROM NmsMirrorPageInfo UNION ALL SELECT 'search ' || iMessageId FROM NmsMirrorPageSearch UNION ALL SELECT 'job ' || iJobLogId FROM XtkJobLog
		UNION ALL SELECT 'file ' || iAttachmentId FROM NmsAttachments UNION ALL SELECT 'msg ' || sProviderId FROM NmsProviderMsgId UNION ALL SELECT 'stat ' || iDeliveryId FROM NmsDeliveryStat
		UNION ALL SELECT 'logstat ' || iDeliveryId FROM NmsDeliveryLogStats UNION ALL SELECT 'url ' || iTrackingUrlId FROM NmsTrackingUrl UNION ALL SELECT 'other ' || iDeliveryId FROM NmsOther) q ORDER BY 1`,
		[]string{"coupon b", "coupon c", "coupon e", "coupon g", "delivery 0 95", "delivery 3 95", "delivery 4 95", "delivery 5 95", "delivery 6 95", "delivery 8 55", "excl 12", "file 2", "job 0", "job 2", "logstat 3", "mid 32", "msg 2",
			"other 1", "page 2", "part 2", "prop 0", "prop 2", "prop 3", "rcp 0", "rcp 3", "rcp 4", "rule 01", "rule 31", "search 2", "stat 3", "stats 2", "store 22", "track 2", "url 2", "web 2"}},
	{"expired-deliveries", 0, mappings + `INSERT INTO NmsBroadLogMsg VALUES (0, 'Delivery cancelled'), (9, 'Delivery cancelled'), (5, 'Delivery cancelled'), (1, 'else');
		INSERT INTO NmsExtAccount (iExtAccountId, iActive, sName) VALUES (1, 1, 'active'), (2, 0, 'idle'), (3, 1, 'never'); INSERT INTO XtkOption (iOptionId, sName, tsTimeStampValue) VALUES (1, 'NmsMidSourcing_LastBroadLog_active', OLD), (2, 'NmsMidSourcing_LastBroadLog_idle', NOW);
		INSERT INTO NmsDelivery (iDeliveryId, iDeliveryMode, iState, iIsModel, iDeleteStatus, tsValidity, tsLastModified, iToDeliver, iProcessed, iDeliveryProviderId) VALUES
			(0, 1, 55, 0, 0, OLD, OLD, 0, 0, 0), (1, 1, 51, 0, 0, OLD, NULL, 0, 0, 0), (2, 1, 50, 0, 0, OLD, OLD, 0, 0, 0), (3, 1, 84, 0, 0, OLD, OLD, 0, 0, 0), (4, 1, 55, 0, 0, NOW, OLD, 0, 0, 0), (5, 1, 55, 1, 0, OLD, OLD, 0, 0, 0), (6, 1, 55, 0, 1, OLD, OLD, 0, 0, 0), (7, 2, 55, 0, 0, OLD, OLD, 0, 0, 0),
			(8, 1, 85, 0, 0, NULL, OLD, 10000, 0, 0), (9, 1, 85, 0, 0, NULL, OLD, 9999, 0, 0), (10, 1, 85, 0, 0, OLD, '2026-02-14 12:00Z', 2147483647, -2147483648, 0), (11, 1, 85, 0, 0, OLD, '2026-02-14 12:00:01Z', 2147483647, -2147483648, 0),
			(20, 4, 95, 0, 1, '2026-02-14 11:59:59Z', OLD, 0, 0, 0), (21, 4, 85, 0, 0, '2026-02-14 11:59:59Z', OLD, 0, 0, 0), (22, 4, 85, 0, 0, '2026-02-14 12:00Z', OLD, 0, 0, 3), (23, 4, 85, 0, 0, '2026-02-28 12:00Z', OLD, 0, 0, 1), (24, 4, 85, 0, 0, OLD, OLD, 0, 0, 1), (25, 4, 85, 0, 0, '2026-02-28 12:00Z', OLD, 0, 0, 2), (26, 4, 55, 0, 0, '2026-02-01 12:00Z', OLD, 0, 0, 1);
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, iStatus, tsLastModified) SELECT iDeliveryId + 100, iDeliveryId, 6, OLD FROM NmsDelivery; INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId, iStatus) VALUES (1001, 1, 1), (1002, 99, 6), (0, 1, 6);
		INSERT INTO NmsExcludeLogRcp (iBroadLogId, iDeliveryId, iStatus) VALUES (1, 1, 6); INSERT INTO CusBroadLogStore (iBroadLogId, iDeliveryId, iStatus) VALUES (1, 1, 6);
		INSERT INTO NmsDeliveryPart (iDeliveryPartId, iDeliveryId, tsValidity) VALUES (0, 1, OLD), (1, 1, NOW), (2, 2, NOW), (3, 2, OLD), (4, 9, NULL), (5, 0, NOW), (6, 99, YOUNG)`,
		`SELECT x FROM (SELECT 'pending ' || iBroadLogId AS x FROM NmsBroadLogRcp WHERE iStatus = 6 UNION ALL SELECT 'excl ' || iStatus FROM NmsExcludeLogRcp UNION ALL SELECT 'store ' || iStatus || ' ' || iMsgId FROM CusBroadLogStore
		UNION ALL SELECT 'ended ' || iDeliveryId || CASE WHEN tsLastModified::timestamptz = timestamptz '2026-03-01 12:00Z' THEN ' now' ELSE '' END FROM NmsDelivery WHERE iState = 95 UNION ALL SELECT 'part ' || iDeliveryPartId FROM NmsDeliveryPart) q ORDER BY 1`,
		[]string{"ended 1 now", "ended 11 now", "ended 20", "ended 21 now", "ended 23 now", "ended 3 now", "ended 8 now", "excl 6", "part 0", "part 2", "part 5", "part 6", "pending 0", "pending 100", "pending 1002", "pending 102", "pending 104", "pending 105", "pending 106", "pending 107",
			"pending 109", "pending 110", "pending 122", "pending 124", "pending 125", "pending 126", "store 7 5"}},
	{"mirror-pages", 0, `INSERT INTO NmsDelivery (iDeliveryId, iWebResPurged, iNeedMirrorPage, tsWebValidity) VALUES (0, 0, 1, OLD), (1, 0, 1, OLD), (2, 0, 0, OLD), (3, 0, 1, NOW), (4, 0, 1, NULL), (5, 1, 1, OLD), (-6, 0, 2, OLD);
		INSERT INTO NmsMirrorPageInfo (iMirrorPageInfoId, iDeliveryId) SELECT iDeliveryId + 10, iDeliveryId FROM NmsDelivery; INSERT INTO NmsMirrorPageSearch (iMessageId, iDeliveryId) SELECT iDeliveryId + 10, iDeliveryId FROM NmsDelivery;
		INSERT INTO NmsMirrorPageInfo (iMirrorPageInfoId, iDeliveryId) VALUES (0, 1); INSERT INTO XtkJobLog (iJobLogId, iJobId) VALUES (0, 0), (7, 3); DROP SEQUENCE XtkNewId, XtkJobLogId`,
		`SELECT x FROM (SELECT 'delivery ' || iDeliveryId || ' ' || iWebResPurged AS x FROM NmsDelivery UNION ALL SELECT 'page ' || iMirrorPageInfoId FROM NmsMirrorPageInfo UNION ALL SELECT 'search ' || iMessageId FROM NmsMirrorPageSearch
		UNION ALL SELECT 'job ' || iJobId || ' ' || (iJobLogId < 0) FROM XtkJobLog WHERE iJobLogId <> 7 AND iJobLogId <> 0 AND (tsLog::timestamptz = timestamptz '2026-03-01 12:00Z')) q ORDER BY 1`,
		[]string{"delivery -6 1", "delivery 0 0", "delivery 1 1", "delivery 2 1", "delivery 3 0", "delivery 4 0", "delivery 5 1", "job -6 true", "job 1 true", "page 0", "page 10", "page 12", "page 13", "page 14", "page 15", "search 10", "search 12", "search 13", "search 14", "search 15"}},
	{"work-tables", 0, `INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, iState) VALUES (0, 0, 55), (1, 0, 55), (2, 0, 85), (3, 0, 0), (4, 0, 100), (5, 1, 55), (-6, 0, 95);
		CREATE TABLE wkDlv_1 (i int); CREATE TABLE wkDlv_2_1 (i int); CREATE TABLE wkDlv_3 (i int); CREATE TABLE wkDlv_4_x_y (i int); CREATE TABLE wkDlv_5 (i int); CREATE TABLE wkDlv_4294967290_1 (i int); CREATE TABLE wkDlv_4294967289 (i int);
		CREATE TABLE wkDlv_0 (i int); CREATE TABLE wkDlv_02 (i int); CREATE TABLE wkDlv_2x (i int); CREATE TABLE wkDlv_4294967296 (i int); CREATE TABLE wkDlv_ (i int); CREATE TABLE wkDlvX2 (i int); CREATE TABLE wkDlv_99 (i int); CREATE VIEW wkDlv_99_v AS SELECT * FROM wkDlv_99; CREATE VIEW wkDlv_99_a AS SELECT * FROM wkDlv_99_v;
		CREATE TABLE wkDlv_98 (i int); CREATE VIEW stands_on_98 AS SELECT * FROM wkDlv_98; CREATE TABLE wkDlv_97 (i int) PARTITION BY RANGE (i); CREATE TABLE wkDlv_97_p PARTITION OF wkDlv_97 DEFAULT; CREATE SEQUENCE wkDlv_96; CREATE MATERIALIZED VIEW wkDlv_95 AS SELECT 1;
		CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.wkDlv_99 (i int)`,
		`SELECT n.nspname || '.' || relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE relname LIKE 'wkdlv%' ORDER BY 1`,
		[]string{"elsewhere.wkdlv_99", "public.wkdlv_", "public.wkdlv_0", "public.wkdlv_02", "public.wkdlv_1", "public.wkdlv_2x", "public.wkdlv_4294967290_1", "public.wkdlv_4294967296", "public.wkdlv_95", "public.wkdlv_96", "public.wkdlv_98", "public.wkdlvx2"}},
	{"workflow-instances", 0, `INSERT INTO XtkWorkflow (iWorkflowId, iState, iHistory) VALUES (0, 5, 1), (1, 5, 10), (2, 20, 0), (3, 20, 9999999), (-4, 1, 10);
		INSERT INTO NmsDelivery (iDeliveryId, iState) VALUES (1, 55); INSERT INTO NmsGroup (iGroupId, iType) VALUES (0, 0), (22, 1), (-23, 0);
		INSERT INTO XtkWorkflowLog (iWorkflowLogId, iWorkflowId, tsLog) VALUES (0, 1, '2000-01-01'), (1, 1, '2026-02-19 11:59:59Z'), (2, 1, '2026-02-19 12:00Z'), (3, 2, '2000-01-01'), (4, 3, '2000-01-01'), (5, 3, '1950-01-01'), (6, 0, '2000-01-01'), (7, 99, '2000-01-01'), (8, -4, '2000-01-01'), (9, 1, NULL);
		INSERT INTO XtkWorkflowTask (iWorkflowTaskId, iWorkflowId, iStatus, tsCompletion, iTaskIdentifier) VALUES (1, 1, 0, '2000-01-01', 1), (2, 1, 1, '2000-01-01', 2), (3, 1, -1, '2000-01-01', 3), (4, 1, 1, NOW, 4);
		INSERT INTO XtkWorkflowEvent (iWorkflowEventId, iWorkflowId, iStatus, tsProcessing, iEventIdentifier) VALUES (1, 1, 2, '2000-01-01', 1), (2, 1, 3, '2000-01-01', 2), (3, 2, 3, '2000-01-01', 3);
		CREATE TABLE wkDlv_9 (i int); CREATE TABLE wkf1_1 (i int); CREATE TABLE wkf2_1 (i int); CREATE TABLE wkf2_grp22 (i int); CREATE TABLE wkf2_grp4294967273 (i int); CREATE TABLE wkf2_grp23 (i int); CREATE TABLE wkf2_grp22_tmp (i int); CREATE TABLE wkf2_grp22x (i int); CREATE TABLE wkf2_grp9_tmp_grp22 (i int); CREATE TABLE wkf2_grp22_tmp_grp9 (i int); CREATE TABLE wkf2_grp9_tmp (i int); CREATE TABLE wkf4294967292 (i int); CREATE TABLE wkf4294967291_1 (i int);
		CREATE TABLE "wkf12_a
b" (i int); CREATE TABLE wkf0_1 (i int); CREATE TABLE wkf007_1 (i int); CREATE TABLE wkf12x (i int); CREATE TABLE wkfhisto2_q (i int); CREATE TABLE wkfhisto99_q (i int); CREATE TABLE wkfhisto99_grp22 (i int); CREATE TABLE wkfhistory (i int)`,
		`SELECT x FROM (SELECT 'log ' || iWorkflowLogId AS x FROM XtkWorkflowLog UNION ALL SELECT 'task ' || iWorkflowTaskId FROM XtkWorkflowTask UNION ALL SELECT 'event ' || iWorkflowEventId FROM XtkWorkflowEvent UNION ALL SELECT relname::text FROM pg_class WHERE relname LIKE 'wk%') q ORDER BY 1`,
		[]string{"event 1", "event 3", "log 0", "log 2", "log 3", "log 4", "log 6", "log 7", "log 9", "task 1", "task 4", "wkf007_1", "wkf0_1", "wkf12x", "wkf1_1", "wkf2_grp22", "wkf2_grp22_tmp", "wkf2_grp22_tmp_grp9", "wkf2_grp4294967273", "wkf2_grp9_tmp_grp22", "wkf4294967292", "wkfhisto2_q", "wkfhisto99_grp22", "wkfhistory"}},
	{"orphan-work-tables", 0, `INSERT INTO NmsGroup (iGroupId, iType) VALUES (0, 0), (1, 1), (2, 0), (-3, 1); CREATE TABLE NmsDeliveryX (i int);
		CREATE TABLE grp1 (i int); CREATE TABLE grp2 (i int); CREATE TABLE grp4294967293 (i int); CREATE TABLE grp9 (i int); CREATE TABLE grp9_1 (i int); CREATE TABLE grp0 (i int); CREATE TABLE groups (i int)`,
		"SELECT relname::text FROM pg_class WHERE relname LIKE 'gr%' AND relkind = 'r' ORDER BY 1", []string{"groups", "grp0", "grp1", "grp4294967293", "grp9_1"}},
	{"email-error-stats", 20, `INSERT INTO XtkOption (iOptionId, sName, tsTimeStampValue) VALUES (5, 'NmsLastErrorStatCoalesce', EDGE);
		INSERT INTO NmsEmailErrorStat (iMXIP, iPublicId, tsDate, iTotalErrors, iTotalConnections) VALUES (1, 1, OLD, 1, 1), (1, 1, EDGE, 10, 2147483647), (1, 1, YOUNG, 10, 5), (1, 2, YOUNG, 19, 1), (2, 1, YOUNG, 2147483647, 1), (2, 1, '2026-02-28 12:00Z', 1, 1), (3, 3, NOW, 50, 1)`,
		`SELECT x FROM (SELECT iMXIP || '/' || iPublicId || ' ' || iTotalErrors || ' ' || iTotalConnections AS x FROM NmsEmailErrorStat UNION ALL SELECT sName || ' ' || (tsTimeStampValue::timestamptz = timestamptz '2026-03-01 12:00Z') FROM XtkOption) q ORDER BY 1`,
		[]string{"1/1 1 1", "1/1 20 2147483647", "2/1 2147483647 2", "3/3 50 1", "NmsLastErrorStatCoalesce true"}},
	{"simulation-tables", 0, `INSERT INTO NmsSimulation VALUES (0), (1), (-2); CREATE TABLE wkSimu_1_aggr (i int); CREATE TABLE wkSimu_4294967294_x (i int); CREATE TABLE wkSimu_9_aggr (i int); CREATE TABLE wkSimu_9x (i int); CREATE TABLE wkSimu_4294967290 (i int)`,
		"SELECT relname::text FROM pg_class WHERE relname LIKE 'wks%' ORDER BY 1", []string{"wksimu_1_aggr", "wksimu_4294967294_x", "wksimu_9x"}},
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
	{"tracking-logs", 365, mappings + `INSERT INTO NmsTrackingLogRcp (iTrackingLogId, tsLog) VALUES (0, OLD), (1, OLD), (2, EDGE), (3, YOUNG), (4, NULL), (-5, OLD);
		INSERT INTO CusTrackingLogStore (iTrackingLogId, tsLog) VALUES (0, OLD), (1, OLD), (11, OLD), (12, YOUNG);
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
	{"propositions", 365, `INSERT INTO NmsPropositionRcp (iPropositionId, tsLastModified) VALUES (0, OLD), (1, OLD), (2, EDGE), (3, NULL), (-4, OLD);
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
		INSERT INTO NmsEventHisto (biEventHistoId, tsLastModified) VALUES (0, OLD), (1, OLD), (2, timestamptz '2026-03-01 12:00Z' - interval '8760 hours 1 second'), (3, timestamptz '2026-03-01 12:00Z' - interval '8760 hours')`,
		`SELECT x FROM (SELECT 'rt ' || iRtEventId AS x FROM NmsRtEvent UNION ALL SELECT 'batch ' || iBatchEventId FROM NmsBatchEvent UNION ALL SELECT 'histo ' || biEventHistoId FROM NmsEventHisto) q ORDER BY 1`,
		[]string{"batch 0", "batch 2", "histo 0", "histo 1", "histo 3", "rt 0", "rt 2", "rt 3"}},
	{"reactions", 0, `INSERT INTO NmsRemaHypothesis VALUES (0), (7); INSERT INTO NmsRemaMatchRcp (iHypothesisId, iBroadLogId) VALUES (0, 1), (7, 2), (99, 3), (98, 3), (-7, 4)`,
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

// changes are the tasks that do more than delete what their query shows.
var changes = map[string]bool{"lists-to-delete": true, "expired-deliveries": true, "mirror-pages": true, "email-error-stats": true, "work-tables": true, "workflow-instances": true}

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
				j := mustRun(t, db, func(c *execute.Config) { c.MaxRows = maxRows }, r.task)
				if got := db.Strings(r.query); !slices.Equal(got, r.left) {
					t.Errorf("left\n%v, want\n%v", got, r.left)
				}
				if gone := int64(len(before) - len(r.left)); !changes[r.task] && (j.deleted[r.task] != gone || expected != gone) {
					t.Errorf("%d rows and tables went, %d were accounted for, a dry run expected %d", gone, j.deleted[r.task], expected)
				}
				if j.states[r.task] != execute.Succeeded {
					t.Errorf("the task is %s: %s", j.states[r.task], j.problems[r.task])
				}
				for _, b := range j.batches {
					if maxRows > 0 && b.Deleted > 2 && r.task != "email-error-stats" { // a row and its twin
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

// Every task copes with databases in which each of the tables that it reads is missing in turn.
func TestMissingTables(t *testing.T) {
	t.Parallel()
	for _, r := range rules {
		t.Run(r.task, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Campaign(t)
			db.Do(r.sql())
			inserted := regexp.MustCompile(`INSERT INTO (\w+)`).FindAllStringSubmatch(r.rows, -1)
			for _, match := range inserted {
				db.Do("DROP TABLE IF EXISTS " + match[1] + " CASCADE")
				j := mustRun(t, db, nil, r.task)
				if state := j.states[r.task]; state != execute.Succeeded && state != execute.Skipped {
					t.Errorf("without %s the task is %s", match[1], state)
				}
			}
		})
	}
}
