package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// afterPredecessors returns the FROM item to read a table. In a dry run this may be a subquery that shows the table
// as the predecessors would have left it, with the table's columns and some system columns.
func (c *compiler) afterPredecessors(t *campaign.Table, system ...string) sqlexpr.Expr {
	var kept []sqlexpr.Expr
	changed := map[string]sqlexpr.Expr{} // the new values, by column
	for _, task := range c.env.Predecessors {
		switch parents, sums := task.ParentRule, task.RollUp; {
		case sums != nil && c.env.Catalog.Table(sums.Table) == t && t.Has(sums.Date, sums.Total) && t.Has(sums.By...):
			return c.rolledUp(task, t)
		case parents != nil && c.env.Catalog.Table(parents.Parent) == t && t.Has(parents.Key):
			ids := sqlexpr.In("v."+parents.Key, sqlexpr.Arg(DryRunDeleted(task.Name), "bigint[]"))
			for _, step := range task.Steps {
				switch {
				case !step.OfParents:
				case step.Update == nil:
					kept = append(kept, sqlexpr.Format("(%s) IS NOT TRUE", ids))
				default:
					c.addUpdates(changed, t, step, ids)
				}
			}
		case task.Name != c.plan.Task.Name:
			if deleted, _ := c.deleted(task, row{"v", t}); !deleted.IsZero() {
				kept = append(kept, sqlexpr.Format("(%s) IS NOT TRUE", deleted))
			}
		}
	}
	if kept == nil && len(changed) == 0 {
		return sqlexpr.SQL(t.Quoted())
	}
	var columns []sqlexpr.Expr
	for _, column := range system {
		columns = append(columns, sqlexpr.SQL("v."+column))
	}
	for _, column := range t.Columns() {
		name := pgx.Identifier{column}.Sanitize()
		shown := sqlexpr.SQL("v." + name)
		if value, ok := changed[column]; ok {
			shown = sqlexpr.Format("%s AS %s", value, name)
		}
		columns = append(columns, shown)
	}
	from := sqlexpr.Format("SELECT %s FROM %s AS v", sqlexpr.Join(", ", columns...), t.Quoted())
	return sqlexpr.Format("(%s)", sqlexpr.Join(" WHERE ", from, sqlexpr.Join(" AND ", kept...)))
}

// deleted is the condition that the task of a policy deletes a row, by its rule or by foreign keys. It is not exact if
// that depends on other rows than this one and those to which it refers. path has the tables from which keys were
// followed.
func (c *compiler) deleted(task Task, r row, path ...*campaign.Table) (deleted sqlexpr.Expr, exact bool) {
	deleted, exact = c.deletedAlone(task, r)
	var swept, going []*campaign.Table
	for _, step := range task.Steps {
		if tables, err := step.On(c.env, &Plan{Task: task}); err == nil && step.Update == nil && task.Basis != "" {
			swept = append(swept, tables...)
			for _, t := range tables {
				going = append(going, t.Going()...)
			}
		}
	}
	path = append(slices.Clone(path), r.table)
	for _, k := range r.table.ForeignKeys {
		switch {
		case k.Action != campaign.Deletes || !slices.Contains(going, k.Parent):
		case k.Parent == r.table && slices.Contains(swept, r.table): // its rows go only if the rule matches them
		case slices.Contains(path, k.Parent) || !k.Parent.CanSelect || !k.Parent.ShowsAllRows() || k.Parent.Location != "":
			exact = false
		default:
			parent := row{fmt.Sprint("v", len(path)), k.Parent}
			above, isExact := c.deleted(task, parent, path...)
			if exact = exact && isExact; !above.IsZero() {
				deleted = sqlexpr.Or(deleted, sqlexpr.Format("EXISTS (SELECT FROM %s AS %s WHERE %s AND (%s))",
					k.Parent.Quoted(), parent.alias, k.On(parent.alias, r.alias), above))
			}
		}
	}
	return deleted, exact
}

// maxForeseen is the longest condition, in bytes of SQL, by which a dry run foresees what a policy deletes. Longer
// ones, such as those of a hold with foreign keys in circles, multiply with each policy and key until planning takes
// all memory.
const maxForeseen = 2 << 10

// deletedAlone is the condition that the rule of a policy deletes a row.
func (c *compiler) deletedAlone(task Task, r row) (deleted sqlexpr.Expr, exact bool) {
	env := c.env
	place := slices.IndexFunc(env.Predecessors, func(p Task) bool { return p.Name == task.Name })
	env.Predecessors = env.Predecessors[:max(place, 0)]
	alone := &compiler{env: env, plan: &Plan{Task: task}, table: r.table}
	exact = task.Basis != ""
	for _, step := range task.Steps {
		tables, err := step.On(c.env, alone.plan)
		if err != nil || step.Update != nil || !slices.Contains(tables, r.table) {
			exact = exact && err == nil
			continue
		}
		onHold, err := findOnHold(c.env, alone.plan, r.table, false)
		isDistributed := func(h HoldCondition) bool { return h.ReadsDistributed }
		if err != nil || task.Basis == "" || len(step.Rules.reads(c.env.Catalog)) > 0 ||
			slices.ContainsFunc(onHold, isDistributed) {
			exact = false
			continue
		}
		if rules, _ := alone.anyRule(step.Rules, r); rules.IsZero() {
			continue
		}
		matches := func(r row) sqlexpr.Expr {
			rules, _ := alone.anyRule(step.Rules, r)
			rules = sqlexpr.Format("%s%s", rules, excludeZeroRecord(r.alias, r.table))
			for _, h := range onHold {
				if h.ReadsOthers && h.Column != "" { // PostgreSQL then reads the other tables once, and not for each row
					rules = sqlexpr.Format("%s AND (%s.%s IN (%s)) IS NOT TRUE", rules, r.alias, h.Column, h.IDs)
					continue
				}
				// the condition names the row r
				rules = sqlexpr.Format("%s AND NOT EXISTS (SELECT FROM (SELECT %s.tableoid, %[2]s.*) AS r WHERE %[3]s)", rules,
					r.alias, h.Condition)
			}
			if refused := alone.refused(step, r); !refused.IsZero() {
				rules = sqlexpr.Format("%s AND (%s) IS NOT TRUE", rules, refused)
			}
			return rules
		}
		rules := matches(r)
		dependent, isExact := alone.dependent(step, r.table, matches)
		if exact = exact && isExact; !dependent.IsZero() {
			rules = sqlexpr.Format("%s AND (%s.tableoid, %[2]s.ctid) NOT IN (%[3]s)", rules, r.alias, dependent)
		}
		deleted = sqlexpr.Or(deleted, rules)
	}
	if deleted.Size() > maxForeseen {
		return sqlexpr.Expr{}, false
	}
	return deleted, exact
}

// dependent returns a query for the rows of a table, by table and TID, that a step must leave because other rows of the
// table, which it does not match or leaves as well, refer to them. It is empty if no key leads back to the table. It is
// not exact if a key does so through other tables.
func (c *compiler) dependent(
	step Step, t *campaign.Table, matches func(r row) sqlexpr.Expr,
) (query sqlexpr.Expr, exact bool) {
	var keys []*campaign.Cascade
	exact = true
	for _, parent := range t.Going() {
		for _, k := range slices.Concat(parent.Cascades, parent.Refusals) {
			switch {
			case k.Table != t || k.Action == campaign.Clears:
			case parent == t:
				keys = append(keys, k)
			default:
				exact = exact && step.childless()
			}
		}
	}
	if keys == nil {
		return query, exact
	}
	lower := row{"lower", t}
	stays := sqlexpr.Format("(%s) IS NOT TRUE", matches(lower))
	for _, before := range c.env.Predecessors {
		deleted, isExact := c.deleted(before, lower)
		if exact = exact && (isExact || before.Basis == ""); !deleted.IsZero() {
			stays = sqlexpr.Format("%s AND (%s) IS NOT TRUE", stays, deleted)
		}
	}
	var first, next []sqlexpr.Expr
	for _, k := range keys {
		upper := fmt.Sprintf("SELECT upper.tableoid, upper.ctid FROM %s AS lower JOIN %[1]s AS upper ON %[2]s WHERE ",
			t.Quoted(), k.On("upper", "lower"))
		first = append(first, sqlexpr.Format("%s%s", upper, stays))
		next = append(next, sqlexpr.SQL(upper+"lower.tableoid = staying.rel AND lower.ctid = staying.place"))
	}
	return sqlexpr.Format("WITH RECURSIVE staying (rel, place) AS (%s UNION SELECT up.* FROM staying, "+
		"LATERAL (%s) AS up) SELECT rel, place FROM staying", sqlexpr.Join(" UNION ", first...),
		sqlexpr.Join(" UNION ALL ", next...)), exact
}

type tableColumns struct {
	table   *campaign.Table // nil for the table of the step
	columns []string
}

// reads returns the columns that the rules of a policy read, other than those of the row itself.
func (rs Rules) reads(c *campaign.Catalog) (reads []tableColumns) {
	for _, rule := range rs {
		for _, part := range rule {
			switch p := part.(type) {
			case Orphan:
				if t := c.Table(p.Parent); t != nil {
					reads = append(reads, tableColumns{t, []string{p.Key}})
				}
			case Newest:
				reads = append(reads, tableColumns{columns: p.columns()})
			}
		}
	}
	return reads
}

func (rs Rules) columns() (columns []string) {
	for _, rule := range rs {
		for _, part := range rule {
			columns = append(columns, part.columns()...)
		}
	}
	return columns
}

// estimates returns why the number of rows of a job in a dry run of a policy may differ from that of a run.
func (c *compiler) estimates(step Step, job Job) (why []string) {
	if c.plan.Task.Basis == "" || !c.env.DryRun {
		return nil
	}
	reads := step.Rules.reads(c.env.Catalog)
	keys := c.table.Keeping()
	if slices.ContainsFunc(step.Rules, func(r Rule) bool { return slices.Contains(r, Part(Unreferenced{})) }) {
		keys = append(keys, c.table.KeysTo()...)
	}
	for _, k := range c.table.Keeping() {
		if isHidden(k.Table) && step.Update == nil && !step.childless() {
			why = append(why, c.keptUnseen(k.Table))
		}
	}
	for _, k := range keys {
		reads = append(reads, tableColumns{k.Table, k.Columns})
	}
	for _, read := range reads {
		if read.table == c.table {
			why = append(why, "an estimate: rows that are deleted make other rows orphans")
		}
	}
	alone := c.env
	alone.Predecessors = nil
	for _, task := range c.env.Predecessors {
		if task.Name == c.plan.Task.Name {
			continue
		}
		p, err := Compile(task, alone)
		// if keys lead back to the table, the rows to follow are read as they are before the predecessors
		fewer := func(j Job) bool {
			return job.Cascade.Circular() && j.Set == nil && slices.Contains(j.Table.Going(), c.table)
		}
		if err == nil && (slices.ContainsFunc(p.Jobs, fewer) ||
			c.depends(p, append(reads, tableColumns{columns: step.Rules.columns()}))) {
			why = append(why, fmt.Sprintf("an estimate: %s changes rows that this rule reads", task.Name))
		}
	}
	return why
}

// keptUnseen says that it is unknown how many rows a table that cannot be read keeps by foreign keys.
func (c *compiler) keptUnseen(t *campaign.Table) string {
	text := "an estimate: rows of " + t.FullName() + " that refer to these by a foreign key keep them; how many is unknown"
	if !t.CanSelect {
		text += fmt.Sprintf(": GRANT SELECT ON %s TO %s", t.FullName(), c.env.Catalog.Role)
	}
	return text
}

// depends reports whether a predecessor, compiled as p, changes what the task reads in a way that the dry run does
// not account for.
func (c *compiler) depends(p *Plan, reads []tableColumns) bool {
	for i, read := range reads {
		t, itself := c.table, i == len(reads)-1 // the columns of the row itself
		if read.table != nil {
			t = read.table
		}
		for _, job := range p.Jobs {
			isRead := func(a purge.Assignment) bool {
				return slices.ContainsFunc(read.columns, func(name string) bool { return t.Stored(name) == a.Column })
			}
			switch {
			case job.Set != nil:
				if job.Table == t && slices.ContainsFunc(job.Set, isRead) {
					return true
				}
			case job.Childless && job.Table != t: // no row of another table refers to its rows
			case job.Table.Clears(t):
				return true
			case slices.Contains(job.Table.Going(), t) && (!itself || job.Table != t) && !c.accounted(p.Task, t):
				return true
			}
		}
	}
	return false
}

// accounted reports whether afterPredecessors leaves out exactly those rows of the table that the task deletes.
func (c *compiler) accounted(task Task, t *campaign.Table) bool {
	if parents := task.ParentRule; parents != nil && c.env.Catalog.Table(parents.Parent) == t {
		return true
	}
	_, exact := c.deleted(task, row{"v", t})
	return exact
}

// addUpdates adds the new values that a step gives to rows. It leaves out dates, because no rule reads the dates of
// another row.
func (c *compiler) addUpdates(changed map[string]sqlexpr.Expr, t *campaign.Table, step Step, ids sqlexpr.Expr) {
	rules := c.anyRuleOf(step.Rules, row{"v", t})
	if rules.IsZero() {
		return
	}
	for _, a := range step.Update {
		if n, ok := a.Value.(Number); ok && t.Has(a.Column) {
			column := strings.ToLower(a.Column)
			before, again := changed[column]
			if !again {
				before = sqlexpr.SQL("v." + column)
			}
			changed[column] = sqlexpr.Format("CASE WHEN (%s) AND %s THEN %d ELSE %s END", ids, rules, n, before)
		}
	}
}

// rolledUp returns a subquery that shows the table as rolling it up would leave it. It has only the columns that
// identify the sums, since rules read no others.
func (c *compiler) rolledUp(task Task, t *campaign.Table) sqlexpr.Expr {
	s := task.RollUp
	by := strings.Join(s.By, ", ")
	period := sqlexpr.Format("(v.%[1]s >= %[2]s AND v.%[1]s < %[3]s%[4]s)", s.Date,
		sqlexpr.Arg(RolledUpFrom(task.Name), "timestamptz"), sqlexpr.Arg(c.env.Now, "timestamptz"),
		excludeZeroRecord("v", t))
	return sqlexpr.Format(
		"(SELECT %[1]s FROM %[2]s AS v WHERE %[3]s IS NOT TRUE UNION ALL SELECT %[1]s FROM %[2]s AS v WHERE %[3]s "+
			"GROUP BY %[1]s HAVING sum(%[4]s) >= %[5]d)",
		by, t.Quoted(), period, s.Total, s.Least,
	)
}
