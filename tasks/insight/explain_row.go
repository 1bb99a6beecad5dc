package insight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/rules"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

type Verdict string

const (
	// Deleted means that the next run deletes or updates the row, and DeletedLater that a later run does, if nothing
	// else changes.
	Deleted      Verdict = "DELETE_NEXT_RUN"
	DeletedLater Verdict = "DELETE_LATER"
	// Kept means that no run deletes the row, and Unknown that this cannot be determined.
	Kept    Verdict = "RETAINED"
	Unknown Verdict = "UNKNOWN"
)

// Condition is a part of a rule and its result.
type Condition struct {
	// Of is the table and the id of the row for which the condition is evaluated; "" for the explained row.
	Of string
	// Alternative is the number of the rule, from 1. One rule is sufficient, and all of its parts must be true.
	Alternative int
	Text        string
	// True is the result; nil if unknown.
	True *bool
	// Values are the columns that the condition reads, with their values.
	Values []string
}

// StepExplanation is what a step of a task does to the row.
type StepExplanation struct {
	Task       string
	Action     cleanup.PreviewAction
	Rule       string
	Conditions []Condition
	OnHold     bool
	// OnHoldBy are the holds in Explainer.Holds that retain the row.
	OnHoldBy []rules.Hold
	// tooDeep says why the row is retained while there are holds if none of them is known to keep it.
	tooDeep string
	// Verdict is what the step does, and Why the reason. Since is when the step begins to match, for DeletedLater; nil
	// otherwise.
	Verdict Verdict
	Since   *time.Time
	Why     string

	matches bool // whether a rule matches the row now, or will if nothing else changes
}

// RowExplanation explains why a row is deleted or not.
type RowExplanation struct {
	// Table is the quoted name with the schema.
	Table  string
	Exists bool
	// Key is the condition that was used to find a row r.
	Key sqlexpr.Expr
	// Uncovered is set if nothing is explained, because no task covers the table.
	Uncovered error
	Now       time.Time
	// Steps are in the order of the pipeline.
	Steps []StepExplanation
	// Verdict is that of all steps together. Task is the task that decides it, empty if none does. Since is set for
	// DeletedLater.
	Verdict Verdict
	Task    string
	Since   *time.Time
	Why     string
}

// ErrKey means that the key is not that of one row.
var ErrKey = failure.Field("key", "not a key of one row")

func notCovered(table, why string) error {
	return &failure.Refusal{Reason: failure.ReasonNotCovered, Metadata: map[string]string{"table": table}, Message: why}
}

func noIndex(table, why string) error {
	return &failure.Refusal{
		Reason:   failure.ReasonNoIndex,
		Metadata: map[string]string{"table": table},
		Message:  "no index finds the row within 5 seconds: " + why,
	}
}

// Explainer explains rows by the database as it was when the Explainer was created.
type Explainer struct {
	// Holds are the holds that an explanation names. A caller who may explain a row may not be allowed to see them.
	Holds []rules.Hold

	config     cleanup.Config
	simulation *cleanup.Simulation
	table      *campaign.Table
	// uncovered is why a row of the table is not explained unless foreign keys delete it; nil if a task covers the table.
	uncovered error
}

// NewExplainer returns an Explainer for a table. It determines the parents of the tasks on which the table's rows
// depend, and fails with a failure.Refusal if no task covers the table.
func NewExplainer(ctx context.Context, c cleanup.Config, holds rules.Holds, table string) (*Explainer, error) {
	e, err := simulate(ctx, c, holds)
	if err != nil {
		return nil, err
	}
	if e.table, e.uncovered = e.covered(ctx, table); e.table == nil {
		return nil, e.uncovered
	}
	concerning, err := e.simulation.Concerning(func(p *rules.Plan) bool {
		return e.covers(p, e.table) ||
			slices.ContainsFunc(p.Jobs, func(j rules.Job) bool { return takesAlong(j, e.table) })
	})
	if err != nil {
		return nil, err
	}
	return e, e.simulation.Do(ctx, concerning)
}

func simulate(ctx context.Context, c cleanup.Config, holds rules.Holds) (*Explainer, error) {
	if c.Now.IsZero() {
		if err := c.Pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&c.Now); err != nil {
			return nil, err
		}
	}
	s, err := cleanup.Simulate(ctx, c, holds)
	if err != nil {
		return nil, err
	}
	return &Explainer{config: c, simulation: s}, nil
}

// covered returns a table by its name, or by the name of a partition. It fails with a failure.Refusal if no task covers
// the table, but still returns the table if foreign keys delete its rows.
func (e *Explainer) covered(ctx context.Context, name string) (*campaign.Table, error) {
	table := e.simulation.Database().Env.Catalog.Find(name)
	if table == nil {
		var exists bool
		if err := e.config.Pool.QueryRow(ctx, tableExists, name).Scan(&exists); err != nil {
			return nil, err
		}
		if !exists {
			hint, err := campaign.SimilarTables(ctx, e.config.Pool, name)
			if err != nil {
				return nil, err
			}
			return nil, notCovered(name, fmt.Sprintf("there is no table %.64q%s", name, hint))
		}
	}
	var above []string // the tables with whose rows foreign keys delete or change rows of the table
	var below *campaign.Table
	for _, t := range e.config.Pipeline {
		p, err := e.simulation.Database().Compile(t)
		if err != nil || (table != nil && e.covers(p, table)) {
			return table, err
		}
		for _, j := range p.Jobs {
			isNamed := func(t *campaign.Table) bool {
				return t != j.Table && slices.Contains([]string{t.Name, t.FullName(), t.Quoted()}, name)
			}
			if i := slices.IndexFunc(j.Affected, isNamed); i >= 0 && !slices.Contains(above, j.Table.FullName()) {
				above, below = append(above, j.Table.FullName()), j.Affected[i]
			}
		}
	}
	if above != nil {
		return below, notCovered(name, fmt.Sprintf("no task and no policy covers %.64s: foreign keys delete or change its "+
			"rows with those of %s that they refer to, which can be explained", name, strings.Join(above, ", ")))
	}
	return nil, notCovered(name, fmt.Sprintf("no task and no policy covers %.64s: its rows are kept", name))
}

// tableExists returns whether any schema has a table of the name $1, however it is quoted.
const tableExists = `SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f')
  AND lower(replace($1::text, '"', '')) IN (lower(c.relname), lower(n.nspname || '.' || c.relname)))`

func (e *Explainer) covers(p *rules.Plan, table *campaign.Table) bool {
	return slices.Contains(covered(e.simulation.Database().Env.Catalog, p), table.Quoted())
}

// covered returns the quoted names of the tables that a compiled task covers.
func covered(c *campaign.Catalog, p *rules.Plan) (names []string) {
	if r := p.Task.RollUp; r != nil && c.Table(r.Table) != nil {
		names = append(names, c.Table(r.Table).Quoted())
	}
	for _, j := range p.Jobs {
		if names = append(names, j.Root); j.Paired != nil {
			names = append(names, j.Paired.Relation)
		}
	}
	for _, s := range p.SkippedSteps {
		names = append(names, s.Table.Quoted())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func rollsUp(c *campaign.Catalog, p *rules.Plan, table *campaign.Table) bool {
	r := p.Task.RollUp
	return r != nil && c.Table(r.Table) == table
}

// Row explains the row with a unique key. If the key is a text, it calls onText before it looks for the row, and
// stops if that returns an error. Row fails with ErrKey, or a failure.Refusal.
func (e *Explainer) Row(ctx context.Context, key []KeyColumn, onText func() error) (x RowExplanation, err error) {
	x.Table, x.Now, x.Uncovered = e.table.Quoted(), e.config.Now, e.uncovered
	d := e.simulation.Database()
	ctx = d.InZone(ctx)
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, d.Pool, options, func(tx pgx.Tx) error {
		const settings = "SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '1s'; SET LOCAL DateStyle = 'ISO'"
		if _, err := tx.Exec(ctx, settings); err != nil {
			return err
		}
		r, err := rowOf(ctx, tx, e.table, key, onText)
		if err != nil {
			return err
		}
		x.Key = r.key
		if x.Exists, err = r.find(ctx, tx); err != nil || !x.Exists {
			return err
		}
		if x.Steps, err = (&explanation{Explainer: e, tx: tx, row: *r}).steps(ctx); err != nil {
			return err
		}
		if len(x.Steps) > 0 {
			x.Uncovered = nil
		}
		x.conclude()
		return nil
	})
	if sqlstate.Is(err, pgerrcode.QueryCanceled, pgerrcode.LockNotAvailable) && ctx.Err() == nil {
		err = noIndex(e.table.Quoted(), sqlstate.Explain(err))
	}
	refused := (*failure.Refusal)(nil)
	if e.uncovered != nil && (errors.Is(err, ErrKey) || errors.Is(err, errNoKey) || errors.As(err, &refused)) {
		err = e.uncovered // whatever the key
	}
	return x, err
}

func (x *RowExplanation) conclude() {
	x.Verdict, x.Why = Kept, "no rule deletes it"
	rank := map[Verdict]int{Kept: 0, DeletedLater: 1, Unknown: 2, Deleted: 3}
	for _, s := range x.Steps {
		switch {
		case s.Action != cleanup.ActionDelete || rank[s.Verdict] < rank[x.Verdict] || x.Verdict == Deleted:
		case s.Verdict == Kept:
			if s.OnHold {
				x.Task, x.Why = s.Task, s.Why
			} else if s.matches && x.Task == "" {
				x.Why = s.Task + " does not delete it, since " + strings.TrimPrefix(s.Why, matchesBut)
			}
		case s.Verdict == x.Verdict && (s.Verdict != DeletedLater || !s.Since.Before(*x.Since)):
		default:
			x.Verdict, x.Task, x.Since, x.Why = s.Verdict, s.Task, s.Since, s.Why
		}
	}
	if x.Verdict != Kept || x.Task != "" {
		return
	}
	for _, s := range x.Steps {
		switch {
		case s.Action == cleanup.ActionDelete:
		case rank[s.Verdict] > 0:
			x.Why += fmt.Sprintf(", but %s %s", s.Task, changes(s))
			return
		case s.OnHold && s.matches:
			x.Why += fmt.Sprintf(", and %s does not change it, since %s", s.Task, s.Why)
			return
		}
	}
}

// changes says what a step that deletes no row does to one.
func changes(s StepExplanation) string {
	what := map[cleanup.PreviewAction]string{
		cleanup.ActionUpdate: "changes it", cleanup.ActionDetach: "detaches its partition",
	}[s.Action]
	switch s.Verdict {
	case Deleted:
		return what + " in the next run"
	case DeletedLater:
		return what + " from " + s.Since.UTC().Format(time.RFC3339)
	}
	return "possibly " + what
}

type row struct {
	table *campaign.Table
	// relation is the quoted name of the table, or of the row's partition.
	relation string
	key      sqlexpr.Expr
	zero     bool
}

// linked returns the condition that a row r of another table is linked with the row, given the one on both, where the
// row is named other.
func (r row) linked(on string) sqlexpr.Expr {
	return sqlexpr.Format("EXISTS (SELECT FROM (SELECT r.* FROM %s AS r WHERE %s) AS other WHERE %s)", r.relation, r.key,
		on)
}

// KeyColumn is a column of a key with its value.
type KeyColumn struct {
	// Column may be in upper or lower case; it is empty for the table's own integer key.
	Column string
	// Value is an integer, a UUID, a time as in RFC 3339 or as PostgreSQL prints it, a day as 2026-02-28, or a text.
	Value string
}

// resolve completes the names of columns. What looks like a column that the table does not have, as in a text with a
// comma and an equals sign, belongs to the text before it.
func resolve(ctx context.Context, tx pgx.Tx, t *campaign.Table, key []KeyColumn) (columns []KeyColumn, err error) {
	for i, c := range key {
		name, own := strings.TrimSpace(c.Column), ""
		if name == "" && len(key) == 1 {
			if own, err = ownKey(ctx, tx, t); err != nil {
				return nil, err
			}
		}
		switch {
		case own != "":
			name = own
		case name == "":
			return nil, keysOf(ctx, tx, t, ErrKey)
		case !t.Has(name) && i > 0 && !t.HasInteger(columns[len(columns)-1].Column):
			columns[len(columns)-1].Value += "," + c.Column + "=" + c.Value
			continue
		case !t.Has(name):
			return nil, fmt.Errorf("%w: %s has no column %.64q%s", ErrKey, t.Name, c.Column, flags.Similar(name, t.Columns()))
		}
		columns = append(columns, KeyColumn{t.Stored(name), c.Value})
	}
	return columns, nil
}

// ownKey returns the column of a key that is one integer or UUID; "" if there is none.
func ownKey(ctx context.Context, tx pgx.Tx, t *campaign.Table) (name string, err error) {
	single, _ := t.SingleKey()
	if name = cmp.Or(t.Key, single.Name); name != "" {
		return name, nil
	}
	err = tx.QueryRow(ctx, `SELECT COALESCE(min(a.attname), '') FROM pg_index i JOIN pg_attribute a
			ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
		WHERE i.indrelid = $1 AND i.indisprimary AND i.indnkeyatts = 1
			AND a.atttypid IN ('smallint'::regtype, 'int'::regtype, 'bigint'::regtype, 'uuid'::regtype)`, t.OID).Scan(&name)
	return name, err
}

// rowOf returns the row with a key, which may not exist. If the key is a text, it calls onText.
func rowOf(ctx context.Context, tx pgx.Tx, t *campaign.Table, key []KeyColumn, onText func() error) (*row, error) {
	if len(key) == 0 {
		return nil, keysOf(ctx, tx, t, errNoKey)
	}
	columns, err := resolve(ctx, tx, t, key)
	if err != nil {
		return nil, err
	}
	r := &row{table: t, relation: t.Quoted()}
	hasText := false
	for _, c := range columns {
		value, sqlType, err := c.parse(ctx, tx, t)
		if err != nil {
			return nil, err
		}
		equal, of := "=", sqlexpr.Arg(value, sqlType)
		if column, _ := t.Column(c.Column); sqlType == column.Type {
			equal, of = column.Operator("="), sqlexpr.Format("%s::%s", sqlexpr.Arg(value, "text"), sqlType)
		}
		r.key = sqlexpr.Join(" AND ", r.key, sqlexpr.Format("r.%s %s %s", pgx.Identifier{c.Column}.Sanitize(), equal, of))
		_, isText := value.(string)
		hasText = hasText || isText && !slices.Contains([]string{"uuid", "date", "timestamp without time zone"}, sqlType)
		r.zero = r.zero || (c.Column == t.Key && value == int64(0))
	}
	if err := checkIndexed(ctx, tx, t, columns); err != nil {
		return nil, err
	}
	if hasText {
		if err := onText(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// find reports whether the row exists, and finds its partition.
func (r *row) find(ctx context.Context, tx pgx.Tx) (exists bool, err error) {
	oids, err := sqlexpr.Format("SELECT r.tableoid::bigint FROM %s AS r WHERE %s LIMIT 2", r.relation, r.key).IDs(ctx,
		tx)
	switch {
	case err != nil || len(oids) == 0:
		return false, err
	case len(oids) > 1:
		return false, fmt.Errorf("%w: several rows of %s have it", ErrKey, r.table.Name)
	}
	for _, leaf := range r.table.Leaves {
		if int64(leaf.OID) == oids[0] {
			r.relation = leaf.Quoted()
		}
	}
	return true, nil
}

var errNoKey = failure.Field("key", "is missing")

// keysOf returns an error about a key with the keys that the table has.
func keysOf(ctx context.Context, tx pgx.Tx, t *campaign.Table, wrong error) error {
	rows, _ := tx.Query(ctx, `SELECT string_agg(a.attname, ',' ORDER BY k.place)
		FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place), pg_attribute a
		WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
			AND k.place <= i.indnkeyatts AND a.attrelid = i.indrelid AND a.attnum = k.number
		GROUP BY i.indexrelid, i.indisprimary ORDER BY i.indisprimary DESC, 1`, t.OID) // an error of the query is in rows
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if t.Key != "" && !slices.Contains(keys, t.Key) {
		keys = slices.Insert(keys, 0, t.Key)
	}
	for i, key := range keys {
		keys[i] = strings.ReplaceAll(key, ",", "=…,") + "=…"
	}
	if len(keys) == 0 {
		return fmt.Errorf("%w: %s has no unique key: give columns that an index begins with", wrong, t.Name)
	}
	return fmt.Errorf("%w: for %s, give %s", wrong, t.Name, strings.Join(slices.Compact(keys), ", or "))
}

// spaced is how PostgreSQL prints a time, before its offset.
const spaced = "2006-01-02 15:04:05"

// parse converts the value of a key. sqlType is the type in which it is compared: bigint, uuid, date, timestamptz,
// text, or that of the column, which has an operator for it.
func (c KeyColumn) parse(ctx context.Context, tx pgx.Tx, t *campaign.Table) (value any, sqlType string, err error) {
	if err := tx.QueryRow(ctx, "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = $1 AND "+
		"attname = $2 AND NOT attisdropped", t.OID, c.Column).
		Scan(&sqlType); err != nil {
		return nil, "", err
	}
	if t.HasInteger(c.Column) {
		sqlType = "bigint"
	}
	switch sqlType {
	case "bigint":
		n, err := strconv.ParseInt(strings.TrimSpace(c.Value), 10, 64)
		if err != nil {
			return nil, "", fmt.Errorf("%w: %s is an integer, not %.64q", ErrKey, c.Column, c.Value)
		}
		return n, "bigint", nil
	case "uuid":
		id, err := uuid.Parse(strings.TrimSpace(c.Value))
		if err != nil {
			return nil, "", fmt.Errorf("%w: %s is a UUID, not %.64q", ErrKey, c.Column, c.Value)
		}
		return id.String(), "uuid", nil
	case "date":
		day, err := time.Parse(time.DateOnly, strings.TrimSpace(c.Value))
		if err != nil {
			return nil, "", fmt.Errorf("%w: %s is a day such as 2026-02-28, not %.64q", ErrKey, c.Column, c.Value)
		}
		return day.Format(time.DateOnly), "date", nil
	case "character varying", "text", "character":
		return c.Value, "text", nil
	case "timestamp with time zone", "timestamp without time zone":
		for _, layout := range []string{time.RFC3339, spaced + "-07", spaced + "-07:00", spaced + "-07:00:00"} {
			if at, err := time.Parse(layout, c.Value); err == nil {
				return at, "timestamptz", nil
			}
		}
		if _, err := time.Parse(spaced, c.Value); err == nil && sqlType == "timestamp without time zone" {
			return c.Value, sqlType, nil
		}
		return nil, "", fmt.Errorf("%w: %s is a time such as 2026-02-28T12:00:00.123Z, not %.64q", ErrKey, c.Column, c.Value)
	}
	if column, ok := t.Column(c.Column); ok && column.Operator("=") != "" {
		return c.Value, column.Type, c.check(ctx, tx, column.Type)
	}
	return nil, "", fmt.Errorf("%w: %s is a %s: an integer, a UUID, a text, a day or a time is expected", ErrKey, c.Column,
		sqlType)
}

// check fails with ErrKey if PostgreSQL does not convert the value to a type.
func (c KeyColumn) check(ctx context.Context, tx pgx.Tx, sqlType string) error {
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT $1::text::"+sqlType, c.Value)
		return err
	})
	refused := (*pgconn.PgError)(nil)
	if errors.As(err, &refused) && (pgerrcode.IsDataException(refused.Code) ||
		pgerrcode.IsIntegrityConstraintViolation(refused.Code)) {
		return fmt.Errorf("%w: %s: %s", ErrKey, c.Column, refused.Message)
	}
	return err
}

// checkIndexed fails with a failure.Refusal if no index begins with a column of the key, and with ErrKey if the
// columns are not those of a unique key: with other columns, a caller could search for people. If a table has
// neither a unique key nor a recipient, any columns are accepted. For a table whose rows are on another server,
// where its indexes may be, only the table's own key is accepted.
func checkIndexed(ctx context.Context, tx pgx.Tx, t *campaign.Table, columns []KeyColumn) error {
	var names []string
	for _, c := range columns {
		names = append(names, c.Column)
	}
	slices.Sort(names)
	ownKey := len(names) == 1 && names[0] == t.Key
	if t.Location != "" {
		if !ownKey {
			return notUnique(t)
		}
		return nil
	}
	var indexed bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
		AND a.attnum = i.indkey[0]
		WHERE i.indrelid = $1 AND i.indisvalid AND i.indpred IS NULL AND a.attname = ANY ($2))`, t.OID, names).
		Scan(&indexed); err != nil {
		return err
	}
	if !indexed {
		return noIndex(t.Quoted(), t.Name+" has none that begins with a column of the key")
	}
	if ownKey {
		return nil
	}
	var unique, noUniqueKey bool
	if err := tx.QueryRow(ctx, `SELECT COALESCE(bool_or($2 = ARRAY(SELECT a.attname::text
		FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
		JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
		  WHERE k.place <= i.indnkeyatts ORDER BY a.attname::text COLLATE "C")), false), count(*) = 0
		FROM pg_index i WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
			AND i.indexprs IS NULL`, t.OID, names).
		Scan(&unique, &noUniqueKey); err != nil {
		return err
	}
	if !unique && (!noUniqueKey || t.Has("iRecipientId")) {
		return notUnique(t)
	}
	return nil
}

func notUnique(t *campaign.Table) error {
	return fmt.Errorf("%w: its columns must be those of a unique key of %s", ErrKey, t.Name)
}

// judge adds the conditions of a job's rules to a step, and those of its parents' rules if the row depends on a
// parent. of is the name of the row; "" for the explained row. The result is when all conditions become true; nil
// if they do not with time alone.
func (x *explanation) judge(
	ctx context.Context, s *StepExplanation, p *rules.Plan, j rules.Job, r row, of string,
) (*time.Time, error) {
	b := x.binder(p)
	conditions, own, err := x.conditions(ctx, b, j.Step.Rules, r, of)
	if err != nil {
		return nil, err
	}
	s.Conditions = conditions
	if len(j.Step.Rules) == 0 {
		own = &time.Time{}
	}
	if !j.Step.Dependent() {
		return own, nil
	}
	ids, err := x.parentsOf(ctx, j, r)
	if err != nil {
		return nil, err
	}
	var earliest *time.Time
	for _, id := range ids {
		parent := row{table: p.Parents.Table, relation: p.Parents.Table.Quoted(), key: byID(p.Parents.Key, id)}
		name := fmt.Sprintf("%s %d", parent.table.Name, id)
		conditions, due, err := x.conditions(ctx, b, p.Task.ParentRule.Rules, parent, name)
		if err != nil {
			return nil, err
		}
		s.Conditions = append(s.Conditions, conditions...)
		earliest = earlier(earliest, due)
	}
	return later(own, earliest), nil
}

func (x *explanation) parentsOf(ctx context.Context, j rules.Job, r row) ([]int64, error) {
	known := sqlexpr.Format("parent.id <> 0 AND %s", r.key)
	return sqlexpr.Format("%s ORDER BY 1", j.ParentsOf(r.relation, known)).IDs(ctx, x.tx)
}

// conditions evaluates rules for a row. The result is when all parts of one rule become true; nil if they do not
// with time alone.
func (x *explanation) conditions(
	ctx context.Context, b *rules.Binder, rules rules.Rules, r row, of string,
) (all []Condition, since *time.Time, err error) {
	env := x.simulation.Database().EnvFor(b.Plan.Task.Name)
	for i, clauses := range b.Plan.Clauses(rules, r.table, env) {
		at := &time.Time{}
		for _, clause := range clauses {
			c := Condition{Of: of, Alternative: i + 1, Text: clause.Text}
			if c.True, err = ask[bool](ctx, x.tx, b, clause.Condition, r); err != nil {
				return nil, nil, err
			}
			if c.Values, err = x.values(ctx, clause.Columns, r); err != nil {
				return nil, nil, err
			}
			if c.True == nil || !*c.True {
				due, err := x.due(ctx, b, clause.TrueFrom, r)
				if err != nil {
					return nil, nil, err
				}
				at = later(at, due)
			}
			all = append(all, c)
		}
		since = earlier(since, at)
	}
	return all, since, nil
}

// due returns when a condition becomes true; nil if it does not with time alone.
func (x *explanation) due(ctx context.Context, b *rules.Binder, at sqlexpr.Expr, r row) (*time.Time, error) {
	if at.IsZero() {
		return nil, nil
	}
	due := sqlexpr.Format("(SELECT CASE WHEN due.at < %s THEN due.at END FROM (SELECT %s AS at) AS due)", rules.Never,
		at)
	return ask[time.Time](ctx, x.tx, b, due, r)
}

// ask evaluates SQL for a row. It returns nil if the value is NULL or the row does not exist.
func ask[T any](ctx context.Context, tx pgx.Tx, b *rules.Binder, sql sqlexpr.Expr, r row) (value *T, err error) {
	bound, err := b.Bind(ctx, sql, nil)
	if err != nil {
		return nil, err
	}
	err = sqlexpr.Format("SELECT %s FROM %s AS r WHERE %s", bound, r.relation, r.key).QueryRow(ctx, tx).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return value, err
}

func (x *explanation) values(ctx context.Context, columns []string, r row) (values []string, err error) {
	for _, column := range columns {
		if column == "" || !r.table.Has(column) {
			continue
		}
		var value *string
		query := sqlexpr.Format("SELECT r.%s::text FROM %s AS r WHERE %s", r.table.Spell(column), r.relation,
			r.key)
		err := query.QueryRow(ctx, x.tx).Scan(&value)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil, nil
		case err != nil:
			return nil, err
		case value == nil:
			values = append(values, column+" is NULL")
		default:
			values = append(values, column+" = "+*value)
		}
	}
	return values, nil
}

func earlier(a, b *time.Time) *time.Time {
	if a == nil || (b != nil && b.Before(*a)) {
		return b
	}
	return a
}

// later returns the later one of two times, where nil means never.
func later(a, b *time.Time) *time.Time {
	if a == nil || b == nil {
		return nil
	}
	if a.Before(*b) {
		return b
	}
	return a
}
