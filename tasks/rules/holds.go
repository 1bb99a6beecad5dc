package rules

import (
	"slices"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Holds are all holds together. Rows on hold are retained even if rules match them.
type Holds struct {
	// Names are the names of the holds. If there are none, nothing is on hold.
	Names      []string
	Everything bool
	// Tables are tables, partitions and work tables that are on hold with all of their rows.
	Tables []HeldTable
	// Deliveries, Lists and Workflows are ids of rows that are on hold with the rows that belong to them.
	Deliveries, Lists, Workflows []int64
	// Rows with one of these ids in iRecipientId are on hold.
	Recipients []int64
	// Rows are on hold with the rows that refer to them.
	Rows []HeldRows
}

// Hold is a single hold.
type Hold struct {
	ID, Reason string
	Holds
}

// Warnings say what the hold keeps other than what it names, since its table or a column of it has changed. The catalog
// has the tables of Rows.
func (h Hold) Warnings(c *campaign.Catalog) (warnings []message.Message) {
	unusable := func(held, problem string) message.Message {
		return message.HoldUnusable.With("table", held, "held", held, "problem", problem)
	}
	for _, t := range h.Tables {
		switch {
		case t.Gone():
			warnings = append(warnings, message.HoldOfNoTable.With("held", t.FullName()))
		case t.Replaced:
			warnings = append(warnings, unusable(t.FullName(), t.Became()))
		}
	}
	for _, rows := range h.Rows {
		held := c.Table(rows.Table)
		if rows.isLost(held) {
			warnings = append(warnings, message.HoldLost.With("held", rows.Table))
			continue
		}
		for _, problem := range []string{rows.Instead, rows.changed(held)} {
			if problem != "" {
				warnings = append(warnings, unusable(rows.Table, problem))
			}
		}
	}
	return warnings
}

func (h *Holds) Add(other Holds) {
	h.Names = append(h.Names, other.Names...)
	h.Everything = h.Everything || other.Everything
	h.Tables = append(h.Tables, other.Tables...)
	h.Deliveries = append(h.Deliveries, other.Deliveries...)
	h.Lists = append(h.Lists, other.Lists...)
	h.Workflows = append(h.Workflows, other.Workflows...)
	h.Recipients = append(h.Recipients, other.Recipients...)
	h.Rows = append(h.Rows, other.Rows...)
}

// idsOf returns the ids of rows of a table that are on hold with the rows that belong to them.
func (h Holds) idsOf(table string) []int64 {
	switch table {
	case "NmsDelivery":
		return h.Deliveries
	case "NmsGroup":
		return h.Lists
	case "XtkWorkflow":
		return h.Workflows
	}
	return nil
}

// HeldTable is a relation that is on hold with all of its rows, even if it is renamed. Another relation that has the
// name is on hold too: it may be the same table, restored from a backup.
type HeldTable struct {
	OID          uint32
	Schema, Name string // when the hold was created
	// NowSchema and NowName are empty if the relation no longer exists. Replaced is set if another relation has its name
	// now.
	NowSchema, NowName string
	Replaced           bool
}

// Gone reports whether nothing is on hold: neither the relation exists nor another one with its name.
func (t HeldTable) Gone() bool { return t.NowName == "" && !t.Replaced }

// FullName returns the table's name when the hold was created.
func (t HeldTable) FullName() string { return campaign.FullName(t.Schema, t.Name) }

func (t HeldTable) isNamed(schema, name string) bool { return t.Schema == schema && t.Name == name }

func (h Holds) hasRelation(oid uint32, schema, name string) bool {
	return h.Everything || slices.ContainsFunc(h.Tables, func(t HeldTable) bool {
		return t.OID == oid || t.isNamed(schema, name)
	})
}

func (h Holds) hasTable(t *campaign.Table) bool { return h.hasRelation(t.OID, t.Schema, t.Name) }

func (h Holds) hasLeaf(l campaign.Leaf) bool { return h.hasRelation(l.OID, l.Schema, l.Name) }

// WholeTable reports whether the table, or a partition of it, is on hold with all of its rows.
func (h Holds) WholeTable(t *campaign.Table) bool {
	return h.hasTable(t) || slices.ContainsFunc(t.Leaves, h.hasLeaf)
}

// noteNamesakes notes that the table, or a partition of it, is on hold only because it has the name of a table on hold.
func (p *Plan) noteNamesakes(env Env, table *campaign.Table) {
	for _, held := range env.Holds.Tables {
		isNamesake := func(l campaign.Leaf) bool { return held.isNamed(l.Schema, l.Name) && held.OID != l.OID }
		if isNamesake(campaign.Leaf{OID: table.OID, Schema: table.Schema, Name: table.Name}) ||
			slices.ContainsFunc(table.Leaves, isNamesake) {
			p.noteUnusable(env, table, held.FullName(), held.Became())
		}
	}
}

// Became says what became of the table if another one has its name.
func (t HeldTable) Became() string {
	if t.NowName == "" {
		return "that table was dropped, and this is another one with its name"
	}
	return "that table is now " + campaign.FullName(t.NowSchema, t.NowName) + ", and this is another one with its name"
}

// WorkTable reports whether a work table is on hold: by its name or a partition's name, because its owner (a row of
// the table owner) is on hold, or because a list in its name is.
func (h Holds) WorkTable(w campaign.WorkTable, owner string) bool {
	isHeld := func(t HeldTable) bool {
		return t.isNamed(w.Schema, w.Name) || (t.NowSchema == w.Schema && t.NowName == w.Name) ||
			slices.Contains(w.Partitions, t.Name) || slices.Contains(w.Partitions, t.NowName)
	}
	return h.Everything || slices.ContainsFunc(h.Tables, isHeld) ||
		slices.Contains(h.idsOf(owner), w.ID) ||
		slices.ContainsFunc(w.ListIDs(), func(id int64) bool { return slices.Contains(h.Lists, id) })
}

// holdLink is a column, quoted for SQL, and the ids in it that put a row on hold. In tables of policies the column
// may have another type than in the application's tables.
type holdLink struct {
	column  string
	ids     []int64
	integer bool
}

func (l holdLink) of(alias string) sqlexpr.Expr {
	if !l.integer {
		return sqlexpr.OneOfTexts(alias+"."+l.column, l.ids)
	}
	return sqlexpr.OneOf(alias+"."+l.column, l.ids)
}

// holdLinks says which rows of a table are on hold by themselves.
type holdLinks struct {
	whole    bool       // all rows are on hold
	leaves   []uint32   // rows in partitions with these object ids are on hold
	columns  []holdLink // rows with one of the ids are on hold
	messages []holdLink // rows with the id of a log whose delivery is one of the ids are on hold
	rows     []HeldRows
}

type holdLinker struct {
	env   Env
	steps []linkedStep
}

type linkedStep struct {
	Step
	tables []*campaign.Table
	key    string  // the id column of the parents
	ids    []int64 // the ids of the parents on hold
}

// newHoldLinker finds the columns that link rows to deliveries, lists or workflows: the columns through which a task of
// the pipeline deletes rows.
func newHoldLinker(env Env) (l holdLinker, err error) {
	l.env = env
	for _, t := range env.Pipeline {
		if t.ParentRule == nil || len(env.Holds.idsOf(t.ParentRule.Parent)) == 0 {
			continue
		}
		for _, step := range t.Steps {
			tables, err := step.On(env, &Plan{})
			if err != nil {
				return l, err
			}
			l.steps = append(l.steps, linkedStep{step, tables, t.ParentRule.Key, env.Holds.idsOf(t.ParentRule.Parent)})
		}
	}
	return l, nil
}

func (l holdLinker) links(table *campaign.Table) (own holdLinks) {
	holds := l.env.Holds
	if holds.hasTable(table) {
		return holdLinks{whole: true}
	}
	for _, leaf := range table.Leaves {
		switch {
		case leaf.OID == table.OID || !holds.hasLeaf(leaf):
		case leaf.Location != "": // its rows have another tableoid on their server
			return holdLinks{whole: true}
		default:
			own.leaves = append(own.leaves, leaf.OID)
		}
	}
	own.rows = holds.matching(l.env.Catalog, table)
	for _, k := range table.ChildKeys { // keys of its partitions or children, which statements on the table cannot follow
		if l.mayBelong(k.Parent, map[*campaign.Table]bool{}) {
			for _, leaf := range k.Table.Leaves {
				if leaf.Location != "" {
					return holdLinks{whole: true}
				}
				own.leaves = append(own.leaves, leaf.OID)
			}
		}
	}
	columns := map[string][]int64{"iRecipientId": holds.Recipients, "iWorkflowId": holds.Workflows}
	belongs := false
	for _, step := range l.steps {
		switch {
		case !slices.Contains(step.tables, table):
		case step.OfParents:
			columns[step.key], belongs = step.ids, true
		case step.Link != "":
			columns[step.Link], belongs = step.ids, true
		case step.Message != "" && table.Has(step.Message):
			own.messages, belongs = append(own.messages, holdLink{step.Message, step.ids, true}), true
		}
	}
	if !belongs { // such as a log of the customer's own that a policy cleans
		columns["iDeliveryId"] = holds.Deliveries
	}
	for _, column := range []string{"iDeliveryId", "iJobId", "iGroupId", "iWorkflowId", "iRecipientId"} {
		if ids := columns[column]; len(ids) > 0 && table.Has(column) {
			own.columns = append(own.columns, holdLink{table.Spell(column), ids, table.HasInteger(column)})
		}
	}
	return own
}

// mayLink reports whether a row that k deletes or changes, or a row that keys delete with it, can be on hold for
// another reason than that the row refers to a row on hold by k. Keys in visited are skipped.
func (l holdLinker) mayLink(k *campaign.Cascade, visited map[*campaign.Cascade]bool) bool {
	if visited[k] {
		return false
	}
	visited[k] = true
	own := l.links(k.Table)
	return own.whole || len(own.leaves)+len(own.columns)+len(own.messages)+len(own.rows) > 0 ||
		slices.ContainsFunc(l.referring(k.Table), func(other *campaign.Cascade) bool { return other != k }) ||
		slices.ContainsFunc(k.Table.Cascades, func(k *campaign.Cascade) bool { return l.mayLink(k, visited) })
}

// messageLogs returns the logs of messages that have the id of a delivery, including those that are not cleaned. It
// returns none if the delivery mappings cannot be read; tasks that find rows by these logs then fail.
func messageLogs(env Env, p *Plan) []*campaign.Table {
	p.requireMappings(env)
	skipped := &Plan{}
	logs, err := DeliveryAndExclusionLogs(env, skipped)
	if err != nil {
		return nil
	}
	logs = slices.Concat(logs, skipped.SkippedTables)
	return slices.DeleteFunc(logs, func(t *campaign.Table) bool { return !t.Has("iBroadLogId", "iDeliveryId") })
}

// NotCoveredByRecipients returns the tables whose rows tasks or foreign keys delete and that refer to a recipient, but
// not by iRecipientId. A hold of recipients does not cover them.
func NotCoveredByRecipients(env Env) (names []string, err error) {
	names = []string{}
	for _, t := range env.Pipeline {
		p, err := Compile(t, env)
		if err != nil {
			return nil, err
		}
		for _, j := range p.Jobs {
			for _, table := range append(j.Table.Dependents(), j.Table) {
				if reachesRecipients(table) {
					names = append(names, table.NameIn(env.Catalog.Schema))
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// MayHold reports whether the environment's holds may keep a row of a table, given by its full or quoted name. If the
// catalog does not have the table, any hold may.
func MayHold(env Env, table string) (bool, error) {
	t := env.Catalog.Table(table)
	if t == nil || env.Holds.Everything {
		return len(env.Holds.Names) > 0, nil
	}
	found, err := findOnHold(env, &Plan{}, t, false)
	return len(found) > 0, err
}

// HoldsConcern reports whether a task changes rows that the environment's holds keep, and returns messages about tables
// whose rows are all retained because the role cannot follow the holds. A task that cannot be compiled changes none.
func HoldsConcern(env Env) (concerns bool, hidden []message.Message) {
	for _, t := range env.Pipeline {
		p, err := Compile(t, env)
		if err != nil {
			continue
		}
		isConcerned := func(j Job) bool { return len(j.OnHold) > 0 }
		concerns = concerns || p.RollUpOnHold || (p.Parents != nil && !p.Parents.OnHold.IsZero()) ||
			slices.ContainsFunc(slices.Concat(p.Jobs, p.Partitionless), isConcerned)
		for _, n := range p.Notes {
			isSame := func(m message.Message) bool { return m.Text == n.Text }
			if n.Code == message.HoldHidden.Code && !slices.ContainsFunc(hidden, isSame) {
				hidden = append(hidden, n)
			}
		}
	}
	return concerns, hidden
}

func reachesRecipients(t *campaign.Table) bool {
	links := []string{"iBroadLogId", "iMessageId", "iTrackingLogId", "iWebTrackingLogId", "iVisitorId"}
	return t.OfRecipients ||
		(!t.Has("iRecipientId") && slices.ContainsFunc(links, func(c string) bool { return t.Has(c) }))
}
