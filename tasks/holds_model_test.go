package tasks_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/rules"
)

func (m *model) isOnHold(r rec) bool { return m.onHold[&r.row[0]] }

// tableOnHold reports whether all rows of a table are on hold.
func (m *model) tableOnHold(table string) bool {
	return m.holds.Everything ||
		slices.ContainsFunc(m.holds.Tables, func(held rules.HeldTable) bool { return held.Name == table })
}

// workTableOnHold reports whether a work table is on hold: by its name, its owner, a list in its name, or a recipient
// in it.
func (m *model) workTableOnHold(name, owner string, id int64) bool {
	h := m.holds
	of := map[string][]int64{"NmsDelivery": h.Deliveries, "NmsGroup": h.Lists, "XtkWorkflow": h.Workflows}[owner]
	if m.tableOnHold(name) ||
		slices.ContainsFunc(of, func(held int64) bool { return unsigned(held) == unsigned(id) }) {
		return true
	}
	if slices.ContainsFunc(
		m.relations[name].recipients, func(id int64) bool { return slices.Contains(h.Recipients, id) },
	) {
		return true
	}
	for rest := name; listPart.MatchString(rest); rest = rest[listPart.FindStringSubmatchIndex(rest)[3]:] {
		if slices.ContainsFunc(h.Lists, func(list int64) bool {
			return "_grp"+strconv.FormatInt(unsigned(list), 10) == strings.TrimSuffix(listPart.FindString(rest), "_")
		}) {
			return true
		}
	}
	return false
}

// onHoldItself reports whether a row is on hold by the values of its columns. messages has the deliveries of each
// message.
func (m *model) onHoldItself(r rec, messages map[int64][]int64) bool {
	has := func(column string, ids []int64) bool {
		return len(ids) > 0 && r.t.Column(column) >= 0 && slices.Contains(ids, r.int(column))
	}
	byMessage := func(column string) bool {
		return slices.ContainsFunc(messages[r.int(column)],
			func(delivery int64) bool { return slices.Contains(m.holds.Deliveries, delivery) })
	}
	h, name := m.holds, r.t.Name
	switch {
	case m.tableOnHold(name),
		has("iRecipientId", h.Recipients),
		has("iWorkflowId", h.Workflows):
		return true
	case name == "nmsgroup" || name == "nmsrcpgrprel" || name == "cuslistnote":
		return has("iGroupId", h.Lists)
	case name == "xtkjoblog":
		return has("iJobId", h.Deliveries)
	case name == "nmscouponvalue":
		return byMessage("iMessageId")
	case slices.Contains(m.propositionTables(),
		name) && r.t.Column("iDeliveryId") < 0 && r.t.Column("iBroadLogId") >= 0:
		return byMessage("iBroadLogId")
	}
	return has("iDeliveryId", h.Deliveries)
}

// applyHolds stores the rows that are on hold.
func (m *model) applyHolds(h rules.Holds) {
	m.holds, m.onHold = h, map[*any]bool{}
	messages := map[int64][]int64{}
	for _, log := range m.allLogs() {
		m.each(log, func(r rec) {
			messages[r.int("iBroadLogId")] = append(messages[r.int("iBroadLogId")], r.int("iDeliveryId"))
		})
	}
	for _, t := range m.db.Tables {
		for _, row := range t.Rows {
			m.onHold[&row[0]] = m.onHoldItself(rec{t, row}, messages)
		}
	}
	paired, web := map[int64]bool{}, map[int64]bool{} // ids with a row on hold; ids of rows of NmsWebTrackingLog
	m.each("NmsWebTrackingLog", func(r rec) {
		id := r.int("iWebTrackingLogId")
		web[id], paired[id] = true, paired[id] || m.isOnHold(r)
	})
	for _, log := range m.trackingLogs() {
		m.each(log, func(r rec) {
			id := r.int("iTrackingLogId")
			paired[id] = paired[id] || m.isOnHold(r)
		})
	}
	m.each("NmsWebTrackingLog", func(r rec) { m.onHold[&r.row[0]] = paired[r.int("iWebTrackingLogId")] })
	for _, log := range m.trackingLogs() {
		m.each(log, func(r rec) {
			if id := r.int("iTrackingLogId"); web[id] && paired[id] {
				m.onHold[&r.row[0]] = true
			}
		})
	}
	for _, f := range m.references {
		if !f.cascade {
			continue
		}
		retainedKeys := map[int64]bool{}
		m.each(f.table, func(r rec) { retainedKeys[r.int(f.column)] = retainedKeys[r.int(f.column)] || m.isOnHold(r) })
		m.each(f.parent, func(r rec) {
			if retainedKeys[r.int(f.key)] {
				m.onHold[&r.row[0]] = true
			}
		})
	}
}

// linkedOnHold returns the ids to which rows on hold are linked.
func (m *model) linkedOnHold(ids map[int64]bool, link string, tables ...string) map[int64]bool {
	own := map[int64]bool{}
	for _, name := range tables {
		m.each(name, func(r rec) {
			if r.t.Column(link) >= 0 && ids[r.int(link)] && m.isOnHold(r) {
				own[r.int(link)] = true
			}
		})
	}
	return own
}

// excludeByMessage removes the deliveries of messages to which rows on hold of a table refer.
func (m *model) excludeByMessage(obsolete map[int64]bool, link, table string) {
	messages := map[int64]bool{}
	m.each(table, func(r rec) {
		if r.t.Column(link) >= 0 && r.int(link) != 0 && m.isOnHold(r) {
			messages[r.int(link)] = true
		}
	})
	for _, log := range m.allLogs() {
		m.each(log, func(r rec) {
			if messages[r.int("iBroadLogId")] {
				delete(obsolete, r.int("iDeliveryId"))
			}
		})
	}
}

func (m *model) randomHolds(rng *rand.Rand) (h rules.Holds) {
	ids := func(table, column string) (some []int64) {
		t := m.db.Table(table)
		if t == nil || len(t.Rows) == 0 {
			return nil
		}
		for range 1 + rng.IntN(5) {
			if id := (rec{t, t.Rows[rng.IntN(len(t.Rows))]}).int(column); id != 0 {
				some = append(some, id)
			}
		}
		return some
	}
	for range 1 + rng.IntN(3) {
		h.Names = append(h.Names, "a hold")
		switch rng.IntN(13) {
		case 0, 1, 2:
			h.Deliveries = append(h.Deliveries, ids("NmsDelivery", "iDeliveryId")...)
		case 3, 4:
			h.Lists = append(h.Lists, ids("NmsGroup", "iGroupId")...)
		case 5, 6:
			h.Workflows = append(h.Workflows, ids("XtkWorkflow", "iWorkflowId")...)
		case 7, 8, 9:
			h.Recipients = append(h.Recipients, ids("NmsBroadLogRcp", "iRecipientId")...)
			h.Recipients = append(h.Recipients, ids("NmsRcpGrpRel", "iRecipientId")...)
		case 10, 11:
			var tables []string
			for _, t := range m.db.Tables {
				tables = append(tables, t.Name)
			}
			for name := range m.relations {
				tables = append(tables, name)
			}
			slices.Sort(tables)
			h.Tables = append(h.Tables, rules.HeldTable{Schema: "public", Name: tables[rng.IntN(len(tables))]})
		case 12:
			h.Everything = rng.IntN(3) == 0
		}
	}
	return h
}
