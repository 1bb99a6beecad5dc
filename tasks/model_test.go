package tasks_test

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// model computes the result of a run in plain Go from the rules, without SQL and without the code under test.
type model struct {
	db         *campaigndb.Database
	now        time.Time
	relations  map[string]relation // work tables and views, by name
	rolledUp   bool                // email-error-stats had something to do
	zone       string              // of dates without a zone; empty if it is the zone of the database
	references []reference
	// The expected counts of the run.
	deleted, updated, dropped int64
	// The expected remote deliveries: account, remote id, id, label.
	recorded []string
	// failing has the rows that fail when deleted or updated, by their first values. failures counts how often they
	// failed.
	failing  map[*any]bool
	failures int64
	// onHold has the rows on hold, by their first values.
	onHold      map[*any]bool
	holds       rules.Holds
	rollUpFails bool
}

type relation struct {
	foreign    bool   // owned by postgres
	on         string // the table that a view depends on
	recipients []int64
}

type rec struct {
	t   *campaigndb.Table
	row campaigndb.Row
}

func (r rec) int(column string) int64 { return r.row[r.t.Column(column)].(int64) }

func (r rec) text(column string) string {
	s, _ := r.row[r.t.Column(column)].(string)
	return s
}

// date returns nil for NULL and for a missing column.
func (r rec) date(column string) *time.Time {
	c := r.t.Column(column)
	if c < 0 || r.row[c] == nil {
		return nil
	}
	when := r.row[c].(time.Time)
	return &when
}

func (r rec) set(column string, value any) { r.row[r.t.Column(column)] = value }

// before reports whether a date is older than a cutoff. NULL is not.
func (r rec) before(column string, at time.Time) bool {
	when := r.date(column)
	return when != nil && when.Before(at)
}

// each calls fn for the rows of a table, except for the zero record.
func (m *model) each(table string, fn func(r rec)) {
	t := m.db.Table(table)
	if t == nil {
		return
	}
	for _, row := range t.Rows {
		if r := (rec{t, row}); t.Key == "" || r.int(t.Key) != 0 {
			fn(r)
		}
	}
}

func (m *model) isFailing(r rec) bool { return m.failing[&r.row[0]] }

func (m *model) fails(r rec) bool {
	if m.isFailing(r) {
		m.failures++
	}
	return m.isFailing(r)
}

func (m *model) remove(table string, gone func(r rec) bool) (failedRows []rec) {
	t := m.db.Table(table)
	if t == nil {
		return nil
	}
	before := len(t.Rows)
	t.Rows = slices.DeleteFunc(t.Rows, func(row campaigndb.Row) bool {
		r := rec{t, row}
		if (t.Key != "" && r.int(t.Key) == 0) || !gone(r) || m.isOnHold(r) {
			return false
		}
		if m.fails(r) {
			failedRows = append(failedRows, r)
			return false
		}
		return true
	})
	m.deleted += int64(before - len(t.Rows))
	for _, f := range m.references {
		if f.cascade && strings.EqualFold(f.parent, table) {
			f.satisfy(m)
		}
	}
	return failedRows
}

// removeLinked deletes the rows that a column links to ids, and returns the failed rows. It does nothing if the table
// lacks the column.
func (m *model) removeLinked(table, link string, ids map[int64]bool) (failedRows []rec) {
	return m.remove(table, func(r rec) bool { return r.t.Column(link) >= 0 && ids[r.int(link)] })
}

func (m *model) step(link string, ids map[int64]bool, tables ...string) {
	var failedRows []rec
	for _, t := range tables {
		failedRows = append(failedRows, m.removeLinked(t, link, ids)...)
	}
	for _, r := range failedRows {
		delete(ids, r.int(link))
	}
}

func (m *model) isReferenced(parent string, id int64) bool {
	return slices.ContainsFunc(m.references, func(f reference) bool {
		return !f.cascade && f.parent == parent && m.ids(f.table, f.column)[id]
	})
}

func (m *model) ids(table, column string) map[int64]bool {
	out := map[int64]bool{}
	if t := m.db.Table(table); t != nil {
		for _, row := range t.Rows {
			out[rec{t, row}.int(column)] = true
		}
	}
	return out
}

const day = 24 * time.Hour

// option returns the row of an option, or nil if it is missing.
func (m *model) option(name string) *rec {
	t := m.db.Table("XtkOption")
	for _, row := range t.Rows {
		if r := (rec{t, row}); r.text("sName") == name {
			return &r
		}
	}
	return nil
}

func (r *rec) isText() bool { return r != nil && r.int("iDataType") == 6 }

func (m *model) cutoff(name string, days int, extra time.Duration) (time.Time, bool) {
	delay := time.Duration(days) * day
	if o := m.option(name); o != nil {
		delay = time.Duration(o.int("iLongValue")) * time.Second
		if o.isText() {
			delay = 0
			if seconds, err := strconv.Atoi(strings.TrimSpace(o.text("sStringValue"))); err == nil {
				delay = time.Duration(seconds) * time.Second
			}
		}
	}
	return m.now.Add(-delay - extra), delay >= day
}

func (m *model) old(table, column, option string, days int, extra time.Duration, also func(r rec) bool) {
	if cutoff, ok := m.cutoff(option, days, extra); ok {
		m.remove(table, func(r rec) bool { return r.before(column, cutoff) && (also == nil || also(r)) })
	}
}

// orphan returns a function that reports whether the parent of a row is missing. Without any parents no row is an
// orphan, unless emptyIsTrue.
func (m *model) orphan(parent, key string, emptyIsTrue bool) func(id int64) bool {
	t := m.db.Table(parent)
	if t == nil || (len(t.Rows) == 0 && !emptyIsTrue) {
		return func(int64) bool { return false }
	}
	ids := m.ids(parent, key)
	return func(id int64) bool { return id != 0 && !ids[id] }
}

// family returns the built-in table and the tables that a column of the mappings names, if they have the key.
func (m *model) family(column, key, builtIn string) []string {
	var names []string
	add := func(name string) {
		t := m.db.Table(name)
		if t != nil && t.Key == key && !slices.Contains(names, t.Name) {
			names = append(names, t.Name)
		}
	}
	if t := m.db.Table("NmsDeliveryMapping"); t != nil {
		for _, row := range t.Rows {
			if parts := strings.Split(rec{t, row}.text(column), ":"); len(parts) == 2 && parts[0] != "" &&
				parts[1] != "" {
				add(strings.ToLower(parts[0] + parts[1]))
			}
		}
	}
	add(builtIn)
	return names
}

func (m *model) deliveryLogs() []string {
	return m.family("sBroadLogSchema", "ibroadlogid", "nmsbroadlogmid")
}

func (m *model) allLogs() []string {
	logs := m.deliveryLogs()
	for _, log := range m.family("sBroadLogExclSchema", "ibroadlogid", "") {
		if !slices.Contains(logs, log) {
			logs = append(logs, log)
		}
	}
	return logs
}

func (m *model) trackingLogs() []string { return m.family("sTrackingLogSchema", "itrackinglogid", "") }

var propositions = regexp.MustCompile(`^nmsproposition[a-z0-9]*$`)

func (m *model) propositionTables() []string {
	var names []string
	for _, t := range m.db.Tables {
		if propositions.MatchString(t.Name) {
			names = append(names, t.Name)
		}
	}
	return names
}

func (m *model) run() {
	m.lists()
	m.deliveries()
	m.expired()
	m.mirrorPages()
	m.dropDelivery()
	orphanJob := m.orphan("XtkJob", "iJobId", false)
	rejects, ok := m.cutoff("NmsCleanup_RejectsPurgeDelay", 180, 0)
	m.remove("XtkReject", func(r rec) bool { return (ok && r.before("tsLog", rejects)) || orphanJob(r.int("iJobId")) })
	m.workflows()
	orphanWorkflow := m.orphan("XtkWorkflow", "iWorkflowId", false)
	m.remove("XtkWorkflowLogin", func(r rec) bool { return orphanWorkflow(r.int("iWorkflowId")) })
	m.drop("grp", "NmsGroup", "iGroupId", func(r rec) bool { return r.int("iType") > 0 })
	m.old("NmsVisitor", "tsLastModified", "NmsCleanup_VisitorPurgeDelay", 30, 0,
		func(r rec) bool { return r.int("iRecipientId") == 0 && r.int("iOrigin") == 0 })
	m.npai()
	m.remove("NmsSubscription", func(r rec) bool { return r.int("iDeleteStatus") != 0 })
	m.tracking()
	needed := m.neededLogs()
	for _, log := range m.allLogs() {
		m.old(log, "tsLastModified", "NmsCleanup_BroadLogPurgeDelay", 180, 0, func(r rec) bool { return !needed(r) })
	}
	m.old("NmsProviderMsgId", "tsCreated", "NmsCleanup_BroadLogPurgeDelay", 180, 0, nil)
	m.rollUp()
	if unknown := m.orphan("NmsEmailErrorStat", "iMXIP", m.rolledUp); !m.rollUpFails {
		m.remove("NmsEmailError", func(r rec) bool { return unknown(r.int("iMXIP")) })
		m.remove("NmsMxDomain", func(r rec) bool { return unknown(r.int("iMXIP")) })
	}
	for _, t := range m.propositionTables() {
		m.old(t, "tsLastModified", "NmsCleanup_PropositionPurgeDelay", 365, 0, nil)
	}
	m.drop("wksimu_", "NmsSimulation", "iSimulationId", func(rec) bool { return true })
	m.old("XtkAudit", "tsChanged", "XtkCleanup_AuditTrailPurgeDelay", 180, 0, nil)
	m.old("NmsAddress", "tsLastModified", "NmsCleanup_AppSubscriptionRcpPurgeDelay", 180, 5*day, func(r rec) bool {
		return r.int("iStatus") == 3 && (r.int("iType") == 41 || r.int("iType") == 42)
	})
	orphanService, orphanApp := m.orphan("NmsService", "iServiceId", false), m.orphan("NmsMobileApp", "iMobileAppId",
		false)
	disabled, ok := m.cutoff("NmsCleanup_AppSubscriptionRcpPurgeDelay", 180, 0)
	m.remove("NmsAppSubscriptionRcp", func(r rec) bool {
		return orphanService(r.int("iServiceId")) || orphanApp(r.int("iMobileAppId")) ||
			(ok && r.int("iDisabled") == 1 && r.before("tsLastModified", disabled))
	})
	m.remove("XtkSessionInfo", func(r rec) bool { return r.before("tsExpiration", m.now) })
	m.old("NmsRtEvent", "tsLastModified", "NmsCleanup_EventPurgeDelay", 30, 0, nil)
	m.old("NmsBatchEvent", "tsLastModified", "NmsCleanup_EventPurgeDelay", 30, 0, nil)
	m.old("NmsEventHisto", "tsLastModified", "NmsCleanup_EventHistoPurgeDelay", 365, 0, nil)
	orphanHypothesis := m.orphan("NmsRemaHypothesis", "iRemaHypothesisId", false)
	m.remove("NmsRemaMatchRcp", func(r rec) bool { return orphanHypothesis(r.int("iHypothesisId")) })
}

func (m *model) lists() {
	obsolete := map[int64]bool{}
	m.each("NmsGroup", func(r rec) {
		if expires := r.date("tsExpirationDate"); r.int("iDeleteStatus") != 0 ||
			(expires != nil && !expires.After(m.now)) {
			obsolete[r.int("iGroupId")] = true
		}
	})
	own := m.linkedOnHold(obsolete, "iGroupId", "NmsGroup", "NmsRcpGrpRel", "CusListNote")
	m.step("iGroupId", obsolete, "NmsRcpGrpRel", "CusListNote")
	m.remove("NmsGroup", func(r rec) bool {
		id := r.int("iGroupId")
		if obsolete[id] && m.isFailing(r) {
			return true
		}
		name := "grp" + strconv.FormatInt(unsigned(id), 10)
		if !obsolete[id] || own[id] || m.isReferenced("NmsGroup", id) ||
			(m.workTableOnHold(name, "NmsGroup", id) && r.int("iType") > 0) {
			return false
		}
		if _, there := m.relations[name]; !there || r.int("iType") <= 0 {
			return true
		}
		return m.dropOne(name)
	})
}

func unsigned(id int64) int64 {
	if id < 0 {
		id += math.MaxUint32 + 1
	}
	return id
}

// dropOne drops a relation, unless it has another owner or a view depends on it.
func (m *model) dropOne(name string) bool {
	if m.relations[name].foreign {
		return false
	}
	for _, r := range m.relations {
		if r.on == name {
			return false
		}
	}
	delete(m.relations, name)
	m.dropped++
	return true
}

func (m *model) obsoleteDeliveries() map[int64]bool {
	obsoleteIDs := map[int64]bool{}
	cutoff, ok := m.cutoff("NmsCleanup_RecycledDeliveryPurgeDelay", 7, 0)
	m.each("NmsDelivery", func(r rec) {
		deleted := r.date("tsDelete")
		if deleted == nil {
			deleted = r.date("tsLastModified")
		}
		if ok && r.int("iDeleteStatus") != 0 && deleted != nil && deleted.Before(cutoff) {
			obsoleteIDs[r.int("iDeliveryId")] = true
		}
	})
	return obsoleteIDs
}

// neededLogs reports whether a log belongs to a retained delivery and has rows that only the log connects with the
// delivery.
func (m *model) neededLogs() func(r rec) bool {
	obsoleteIDs, messages := m.obsoleteDeliveries(), map[int64]bool{}
	delete(obsoleteIDs, 0)
	for _, t := range append(m.propositionTables(), "NmsCouponValue") {
		m.each(t, func(r rec) {
			for _, column := range []string{"iMessageId", "iBroadLogId"} {
				if r.t.Column("iDeliveryId") < 0 && r.t.Column(column) >= 0 {
					messages[r.int(column)] = true
				}
			}
		})
	}
	return func(r rec) bool { return obsoleteIDs[r.int("iDeliveryId")] && messages[r.int("iBroadLogId")] }
}

func (m *model) deliveries() {
	accounts := map[int64]string{}
	m.each("NmsExtAccount", func(r rec) { accounts[r.int("iExtAccountId")] = r.text("sName") })
	delete(accounts, 0)
	obsolete := m.obsoleteDeliveries()
	m.excludeByMessage(obsolete, "iMessageId", "NmsCouponValue")
	for _, t := range m.propositionTables() {
		if m.db.Table(t).Column("iDeliveryId") < 0 {
			m.excludeByMessage(obsolete, "iBroadLogId", t)
		}
	}
	own := m.linkedOnHold(obsolete, "iDeliveryId",
		slices.Concat(
			[]string{
				"NmsDelivery", "NmsDlvExclusion", "NmsWebTrackingLog", "NmsTrackingStats", "NmsDeliveryPart",
				"NmsMirrorPageInfo", "NmsMirrorPageSearch", "NmsAttachments", "NmsProviderMsgId", "NmsDeliveryStat",
				"NmsDeliveryLogStats", "NmsTrackingUrl",
			},
			m.allLogs(), m.trackingLogs(), m.propositionTables())...)
	maps.Copy(own, m.linkedOnHold(obsolete, "iJobId", "XtkJobLog"))
	m.each("NmsDelivery", func(r rec) { // on hold on its mid-sourcing server with all its rows
		if own[r.int("iDeliveryId")] && r.int("iDeliveryMode") == 4 && r.int("iMidRemoteId") != 0 {
			delete(obsolete, r.int("iDeliveryId"))
		}
	})
	m.each("NmsDelivery", func(r rec) {
		// A delivery is stopped before it is deleted.
		if obsolete[r.int("iDeliveryId")] && !own[r.int("iDeliveryId")] &&
			slices.Contains([]int64{51, 55, 61, 62, 71, 72, 75}, r.int("iState")) {
			if m.fails(r) {
				delete(obsolete, r.int("iDeliveryId"))
				return
			}
			m.updated++
			r.set("iState", int64(85))
		}
	})
	m.byMessage(obsolete, "iMessageId", "NmsCouponValue")
	var knowMessage, knowDelivery []string
	for _, t := range m.propositionTables() {
		if m.db.Table(t).Column("iDeliveryId") < 0 {
			knowMessage = append(knowMessage, t)
		} else {
			knowDelivery = append(knowDelivery, t)
		}
	}
	m.byMessage(obsolete, "iBroadLogId", knowMessage...)
	for _, tables := range [][]string{
		{"NmsDlvExclusion"},
		m.allLogs(),
		knowDelivery,
		m.trackingLogs(),
		{"NmsWebTrackingLog", "NmsTrackingStats"},
		{"NmsDeliveryPart"},
		{"NmsMirrorPageInfo", "NmsMirrorPageSearch"},
	} {
		m.step("iDeliveryId", obsolete, tables...)
	}
	m.step("iJobId", obsolete, "XtkJobLog")
	m.step("iDeliveryId", obsolete, "NmsAttachments", "NmsProviderMsgId", "NmsDeliveryStat",
		"NmsDeliveryLogStats", "NmsTrackingUrl")
	m.each("NmsDelivery", func(r rec) {
		if obsolete[r.int("iDeliveryId")] && !m.isFailing(r) && r.int("iDeliveryMode") == 4 &&
			r.int("iMidRemoteId") != 0 {
			m.recorded = append(m.recorded,
				fmt.Sprint(accounts[r.int("iDeliveryProviderId")], " ", r.int("iMidRemoteId"), " ",
					r.int("iDeliveryId"), " ", r.text("sLabel")))
		}
	})
	maps.DeleteFunc(obsolete, func(id int64, _ bool) bool { return own[id] })
	m.removeLinked("NmsDelivery", "iDeliveryId", obsolete)
}

// byMessage deletes the rows of tables that belong to messages of obsolete deliveries, and removes the deliveries of
// failed rows from obsolete.
func (m *model) byMessage(obsolete map[int64]bool, link string, tables ...string) {
	deliveries, messages := map[int64][]int64{}, map[int64]bool{}
	for _, log := range m.allLogs() {
		m.each(log, func(r rec) {
			id := r.int("iBroadLogId")
			deliveries[id] = append(deliveries[id], r.int("iDeliveryId"))
			messages[id] = messages[id] || obsolete[r.int("iDeliveryId")]
		})
	}
	delete(messages, 0)
	var failedRows []rec
	for _, t := range tables {
		failedRows = append(failedRows, m.removeLinked(t, link, messages)...)
	}
	for _, r := range failedRows {
		for _, delivery := range deliveries[r.int(link)] {
			delete(obsolete, delivery)
		}
	}
}

func (m *model) expired() {
	soon := m.now.Add(-15 * day)
	pulled := map[int64]time.Time{}
	m.each("NmsExtAccount", func(r rec) {
		if o := m.option("NmsMidSourcing_LastBroadLog_" + r.text("sName")); o != nil && r.int("iActive") != 0 &&
			o.date("tsTimeStampValue") != nil {
			pulled[r.int("iExtAccountId")] = *o.date("tsTimeStampValue")
		}
	})
	recent := func(r rec) bool { d := r.date("tsLastModified"); return d != nil && d.After(soon) }
	obsolete := map[int64]bool{}
	m.each("NmsDelivery", func(r rec) {
		state := r.int("iState")
		switch r.int("iDeliveryMode") {
		case 1:
			obsolete[r.int("iDeliveryId")] = r.int("iDeleteStatus") == 0 && r.int("iIsModel") == 0 &&
				((state >= 51 && state < 85 && r.before("tsValidity", m.now)) || (state == 85 && recent(r) && r.int(
					"iToDeliver")-r.int("iProcessed") >= 10_000))
		case 4:
			last, known := pulled[r.int("iDeliveryProviderId")]
			obsolete[r.int("iDeliveryId")] = (state == 85 || state == 95) && recent(r) &&
				(r.before("tsValidity", soon) || (known && r.before("tsValidity", last)))
		}
	})
	cancelled := int64(0)
	m.each("NmsBroadLogMsg", func(r rec) {
		if id := r.int("iBroadLogMsgId"); r.text("sText") == "Delivery cancelled" &&
			(cancelled == 0 || id < cancelled) {
			cancelled = id
		}
	})
	own := m.linkedOnHold(obsolete, "iDeliveryId", "NmsDelivery")
	for _, log := range m.deliveryLogs() {
		m.each(log, func(r rec) {
			if obsolete[r.int("iDeliveryId")] && r.int("iStatus") == 6 && m.isOnHold(r) {
				own[r.int("iDeliveryId")] = true
			}
		})
	}
	var failedDeliveries []int64
	for _, log := range m.deliveryLogs() {
		m.each(log, func(r rec) {
			if obsolete[r.int("iDeliveryId")] && r.int("iStatus") == 6 && !m.isOnHold(r) {
				if m.fails(r) {
					failedDeliveries = append(failedDeliveries, r.int("iDeliveryId"))
					return
				}
				m.updated++
				r.set("iStatus", int64(7))
				r.set("tsLastModified", m.now)
				if cancelled != 0 {
					r.set("iMsgId", cancelled)
				}
			}
		})
	}
	for _, id := range failedDeliveries {
		delete(obsolete, id)
	}
	ended := map[int64]bool{}
	m.each("NmsDelivery", func(r rec) {
		if obsolete[r.int("iDeliveryId")] && !own[r.int("iDeliveryId")] && r.int("iState") != 95 && !m.fails(r) {
			m.updated++
			r.set("iState", int64(95))
			r.set("tsLastModified", m.now)
			r.set("tsBroadEnd", m.now)
			if v := r.date("tsValidity"); v != nil {
				r.set("tsBroadEnd", *v)
			}
		}
		ended[r.int("iDeliveryId")] = r.int("iState") == 95 || r.int("iState") == 85
	})
	m.remove("NmsDeliveryPart",
		func(r rec) bool { return ended[r.int("iDeliveryId")] || r.before("tsValidity", m.now) })
}

func (m *model) mirrorPages() {
	over, withPages := map[int64]bool{}, map[int64]bool{}
	m.each("NmsDelivery", func(r rec) {
		if id := r.int("iDeliveryId"); r.int("iWebResPurged") == 0 && r.before("tsWebValidity", m.now) {
			over[id], withPages[id] = true, r.int("iNeedMirrorPage") != 0
		}
	})
	pages := maps.Clone(withPages)
	own := m.linkedOnHold(pages, "iDeliveryId", "NmsMirrorPageInfo", "NmsMirrorPageSearch")
	maps.Copy(own, m.linkedOnHold(over, "iDeliveryId", "NmsDelivery"))
	m.step("iDeliveryId", pages, "NmsMirrorPageInfo", "NmsMirrorPageSearch")
	log := m.db.Table("XtkJobLog")
	m.each("NmsDelivery", func(r rec) {
		id := r.int("iDeliveryId")
		if !over[id] || own[id] || withPages[id] != pages[id] || m.fails(r) {
			return
		}
		m.updated++
		r.set("iWebResPurged", int64(1))
		if pages[id] && log != nil {
			entry := rec{log, make(campaigndb.Row, len(log.Columns))}
			entry.set("iJobId", id)
			entry.set("tsLog", m.now)
			log.Rows = append(log.Rows, entry.row)
		}
	})
}

func (m *model) dropDelivery() {
	m.drop("wkdlv_", "NmsDelivery", "iDeliveryId", func(r rec) bool {
		return r.int("iDeleteStatus") == 0 && !slices.Contains([]int64{0, 85, 100}, r.int("iState"))
	})
}

func (m *model) workflows() {
	history := map[int64]time.Time{}
	m.each("XtkWorkflow", func(r rec) {
		if days := min(r.int("iHistory"), 24_855); days > 0 {
			history[r.int("iWorkflowId")] = m.now.Add(-time.Duration(days) * day)
		}
	})
	past := func(table, column string, also func(r rec) bool) {
		m.remove(table, func(r rec) bool {
			limit, ok := history[r.int("iWorkflowId")]
			return ok && r.before(column, limit) && also(r)
		})
	}
	past("XtkWorkflowLog", "tsLog", func(rec) bool { return true })
	past("XtkWorkflowTask", "tsCompletion", func(r rec) bool { return r.int("iStatus") != 0 })
	past("XtkWorkflowEvent", "tsProcessing", func(r rec) bool { return r.int("iStatus") > 2 })
	m.dropDelivery()
	m.drop("wkf", "XtkWorkflow", "iWorkflowId", func(r rec) bool { return r.int("iState") != 20 })
	m.drop("wkfhisto", "XtkWorkflow", "iWorkflowId", func(rec) bool { return true })
}

var workName = regexp.MustCompile(`^(wkdlv_|wkfhisto|wkf|grp|wksimu_)([1-9][0-9]*)(_.*)?$`)

// listPart matches the part of a work table's name that contains the id of a list. Its end may begin the next part.
var listPart = regexp.MustCompile(`_grp([1-9][0-9]*)(?:_|$)`)

func (m *model) drop(prefix, owner, key string, inUse func(r rec) bool) {
	t := m.db.Table(owner)
	if t == nil || len(t.Rows) == 0 || m.db.Table("NmsDelivery") == nil {
		return
	}
	used := map[int64]bool{}
	m.each(owner, func(r rec) {
		if inUse(r) {
			used[unsigned(r.int(key))] = true
		}
	})
	lists := m.ids("NmsGroup", "iGroupId")
	for _, views := range []bool{true, false} {
		for name, r := range m.relations {
			parts := workName.FindStringSubmatch(name)
			if parts == nil || parts[1] != prefix || (r.on != "") != views || (prefix == "grp" && parts[3] != "") {
				continue
			}
			id, err := strconv.ParseInt(parts[2], 10, 64)
			if err != nil || id > math.MaxUint32 || used[id] {
				continue
			}
			ofList := false
			for rest := name; listPart.MatchString(rest); rest = rest[listPart.FindStringSubmatchIndex(rest)[3]:] {
				list, err := strconv.ParseInt(listPart.FindStringSubmatch(rest)[1], 10, 64)
				if list > math.MaxInt32 {
					list -= math.MaxUint32 + 1
				}
				ofList = ofList || (err == nil && strings.HasPrefix(prefix, "wkf") && (lists[list] || len(lists) == 0))
			}
			if !ofList && !m.workTableOnHold(name, owner, id) {
				m.dropOne(name)
			}
		}
	}
}

func (m *model) npai() {
	if m.option("NmsCleanup_LastCleanup").isText() {
		return
	}
	last := time.Time{}
	if o := m.option("NmsCleanup_LastCleanup"); o != nil && o.date("tsTimeStampValue") != nil {
		last = *o.date("tsTimeStampValue")
	}
	held := false
	failedRows := m.remove("NmsAddress", func(r rec) bool {
		bad := r.int("iStatus") == 2 && r.before("tsLastModified", m.now) && !r.before("tsLastModified", last)
		held = held || (bad && m.isOnHold(r))
		return bad
	})
	if m.db.Table("NmsAddress") != nil && failedRows == nil && !held && !m.tableOnHold("xtkoption") {
		m.store("NmsCleanup_LastCleanup", m.now)
	}
}

// store sets the time of an option. A new row has no id here.
func (m *model) store(name string, when time.Time) {
	if o := m.option(name); o != nil {
		o.set("tsTimeStampValue", when)
		return
	}
	t := m.db.Table("XtkOption")
	r := rec{t, make(campaigndb.Row, len(t.Columns))}
	r.set("sName", name)
	r.set("iDataType", int64(7))
	r.set("iLongValue", int64(0))
	r.set("dDoubleValue", float64(0))
	r.set("tsTimeStampValue", when)
	t.Rows = append(t.Rows, r.row)
}

func (m *model) tracking() {
	if cutoff, ok := m.cutoff("NmsCleanup_TrackingLogPurgeDelay", 365, 0); ok {
		gone, kept := map[int64]bool{}, map[int64]bool{}
		m.each("NmsWebTrackingLog", func(r rec) { kept[r.int("iWebTrackingLogId")] = m.isFailing(r) })
		for _, log := range m.trackingLogs() {
			m.remove(log, func(r rec) bool {
				id, old := r.int("iTrackingLogId"), r.before("tsLog", cutoff)
				if old && kept[id] && !m.isFailing(r) && !m.isOnHold(r) {
					m.failures++
					return false
				}
				gone[id] = gone[id] || (old && !m.isFailing(r) && !m.isOnHold(r))
				return old
			})
		}
		m.removeLinked("NmsWebTrackingLog", "iWebTrackingLogId", gone)
	}
	m.old("NmsTrackingStats", "tsStart", "NmsCleanup_TrackingStatPurgeDelay", 365, 0, nil)
}

func (m *model) rollUp() {
	t := m.db.Table("NmsEmailErrorStat")
	if t == nil || m.option("NmsLastErrorStatCoalesce").isText() {
		return
	}
	m.rolledUp = true
	var start *time.Time
	if o := m.option("NmsLastErrorStatCoalesce"); o != nil {
		start = o.date("tsTimeStampValue")
	}
	if start == nil {
		m.each("NmsEmailErrorStat", func(r rec) {
			if d := r.date("tsDate"); start == nil || d.Before(*start) {
				start = d
			}
		})
	}
	if start == nil || !start.Before(m.now) || m.tableOnHold(t.Name) || m.tableOnHold("xtkoption") {
		return
	}
	sums := map[[2]int64]map[string]int64{}
	before, refused := len(t.Rows), m.failures
	columns := []string{
		"iTotalConnections", "iTotalErrors", "iMessageErrors", "iAbortedConnections", "iFailedConnections",
		"iRefusedConnections", "iTimeoutConnections",
	}
	t.Rows = slices.DeleteFunc(t.Rows, func(row campaigndb.Row) bool {
		r := rec{t, row}
		if r.before("tsDate", *start) || !r.before("tsDate", m.now) || m.fails(r) {
			return false
		}
		group := [2]int64{r.int("iMXIP"), r.int("iPublicId")}
		if sums[group] == nil {
			sums[group] = map[string]int64{}
		}
		for _, c := range columns {
			sums[group][c] += r.int(c)
		}
		return true
	})
	gone := int64(before - len(t.Rows))
	m.deleted, refused = m.deleted+gone, m.failures-refused
	m.rollUpFails = 10*refused > refused+gone
	m.rolledUp = !m.rollUpFails
	for group, sum := range sums {
		if sum["iTotalErrors"] < 20 {
			continue
		}
		r := rec{t, make(campaigndb.Row, len(t.Columns))}
		r.set("iMXIP", group[0])
		r.set("iPublicId", group[1])
		r.set("tsDate", *start)
		for _, c := range columns {
			r.set(c, min(sum[c], math.MaxInt32))
		}
		t.Rows = append(t.Rows, r.row)
	}
	if len(sums) > 0 || refused > 0 {
		m.store("NmsLastErrorStatCoalesce", m.now)
	}
}
