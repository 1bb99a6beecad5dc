package plan

import (
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// Clause is a part of a rule, compile to explain it for one row r.
type Clause struct {
	// Text describes the part for people, with its numbers.
	Text string
	// Condition is the SQL of whether the part is true, TrueFrom of the time from which it is true. TrueFrom has no SQL
	// if time alone does not change the part.
	Condition, TrueFrom sqlexpr.Expr
	// Columns are the columns of the row that the part reads. Some may be missing.
	Columns []string
}

// Clauses returns the parts of each rule that is applicable to a table. A rule matches a row if all its parts are true.
func (p *Plan) Clauses(rules Rules, t *campaign.Table, env Env) (applicable [][]Clause) {
	r := row{"r", t}
	for _, rule := range rules {
		var clauses []Clause
		for _, part := range rule {
			c := &compiler{env: env, plan: &Plan{Task: p.Task}, table: t}
			var condition sqlexpr.Expr
			applies := part.applies(c, r)
			if applies {
				condition, applies = part.sql(c, r)
			}
			if !applies {
				clauses = nil
				break
			}
			clauses = append(clauses, Clause{part.describe(env), condition, part.trueFrom(c, r), part.columns()})
		}
		if clauses != nil {
			applicable = append(applicable, clauses)
		}
	}
	return applicable
}
