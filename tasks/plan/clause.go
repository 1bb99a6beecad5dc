package plan

import "github.com/cleanupd/cleanupd/tasks/campaign"

// Clause is a part of a rule, compile to explain it for one row r.
type Clause struct {
	// Text describes the part for people, with its numbers.
	Text string
	// Condition is the SQL of whether the part is true, TrueFrom of the time from which it is true. TrueFrom has no SQL
	// if time alone does not change the part.
	Condition, TrueFrom Query
	// Columns are the columns of the row that the part reads. Some may be missing.
	Columns []string
}

// Clauses returns the parts of each rule that is applicable to a table. A rule matches a row if all its parts are true.
func (p *Plan) Clauses(rules Rules, t *campaign.Table, env Env) (applicable [][]Clause) {
	r := row{"r", t}
	compile := func(sql func(c *compiler) (string, bool)) (q Query, ok bool) {
		c := &compiler{env: env, plan: &Plan{Task: p.Task}, table: t}
		q.SQL, ok = sql(c)
		q.Args = c.args
		return q, ok
	}
	for _, rule := range rules {
		var clauses []Clause
		for _, part := range rule {
			condition, ok := compile(func(c *compiler) (string, bool) {
				if !part.applies(c, r) {
					return "", false
				}
				return part.sql(c, r)
			})
			if !ok {
				clauses = nil
				break
			}
			trueFrom, _ := compile(func(c *compiler) (string, bool) { return part.trueFrom(c, r), true })
			clauses = append(clauses, Clause{part.describe(env), condition, trueFrom, part.columns()})
		}
		if clauses != nil {
			applicable = append(applicable, clauses)
		}
	}
	return applicable
}
