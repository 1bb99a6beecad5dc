package plan

import "github.com/cleanupd/cleanupd/tasks/campaign"

// Clause is a part of a rule, as it is judged of one row r.
type Clause struct {
	// Text are the part for people, with its numbers.
	Text string
	// Condition is SQL of whether it is true, Due of the moment from which it is; an empty SQL: time alone does not change it.
	Condition, TrueFrom Query
	// Columns are those of the row that it reads, of which some may be missing.
	Columns []string
}

// Clauses are the rules that are applicable to a table, part by part. Those of a rule must all be true of a row for one
// of them to take it.
func (p *Plan) Clauses(rules Rules, t *campaign.Table, env Env) (applicable [][]Clause) {
	its := row{"r", t}
	compiled := func(sql func(c *compiler) (string, bool)) (q Query, ok bool) {
		c := &compiler{Env: env, plan: &Plan{Task: p.Task}, table: t}
		q.SQL, ok = sql(c)
		q.Args = c.args
		return q, ok
	}
	for _, rule := range rules {
		var clauses []Clause
		for _, part := range rule {
			is, ok := compiled(func(c *compiler) (string, bool) {
				if !part.applies(c, its) {
					return "", false
				}
				return part.sql(c, its)
			})
			if !ok {
				clauses = nil
				break
			}
			due, _ := compiled(func(c *compiler) (string, bool) { return part.trueFrom(c, its), true })
			clauses = append(clauses, Clause{part.describe(env), is, due, part.columns()})
		}
		if clauses != nil {
			applicable = append(applicable, clauses)
		}
	}
	return applicable
}
