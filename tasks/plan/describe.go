package plan

import "fmt"

// Describe returns which rows a job deletes or updates, with the rule of the parents that these depend on.
func (p *Plan) Describe(j Job) string {
	switch {
	case !j.Step.Dependent():
		return j.Rule
	case j.Step.OfParents && j.Rule == "":
		return p.Parents.Rule
	case j.Step.OfParents && p.Parents.Rule == "":
		return j.Rule
	case j.Step.OfParents:
		return p.Parents.Rule + "; and " + j.Rule
	case j.Rule == "":
		return fmt.Sprintf("of a row of %s: %s", p.Parents.Table.Name, p.Parents.Rule)
	}
	return fmt.Sprintf("%s, of a row of %s: %s", j.Rule, p.Parents.Table.Name, p.Parents.Rule)
}
