package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// requireRights adds those of the rights to a table that the role lacks. The table is nil if it does not exist.
func (p *Plan) requireRights(env Env, t *campaign.Table, rights ...string) {
	if t != nil {
		p.addRights(missing(env, t.Schema, t.Quoted(), t.Rights, rights))
	}
}

func (p *Plan) addRights(now, later []string) {
	p.Rights, p.RunRights = AddGrants(p.Rights, now...), AddGrants(p.RunRights, later...)
}

// missing returns GRANT statements for those of the rights to a relation that the role lacks. A dry run needs only
// SELECT: later has the rights that only the run needs.
func missing(env Env, schema, relation string, r campaign.Rights, rights []string) (now, later []string) {
	role := pgx.Identifier{env.Catalog.Role}.Sanitize()
	if env.AllRights && !env.OnlyMissing {
		r = campaign.Rights{}
	}
	if !r.CanUse {
		now = append(now, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", pgx.Identifier{schema}.Sanitize(), role))
	}
	has := map[string]bool{"SELECT": r.CanSelect, "INSERT": r.CanInsert, "DELETE": r.CanDelete, "UPDATE": r.CanUpdate}
	var needed, neededLater []string
	for _, right := range rights {
		switch {
		case has[right]:
		case env.DryRun && right != "SELECT":
			neededLater = append(neededLater, right)
		default:
			needed = append(needed, right)
		}
	}
	grant := func(rights []string) string {
		return fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(rights, ", "), relation, role)
	}
	if needed != nil {
		now = append(now, grant(needed))
	}
	if neededLater != nil {
		later = append(later, grant(neededLater))
	}
	return now, later
}

// AddGrants adds statements to others. GRANTs on the same relation become one, with the rights of both.
func AddGrants(list []string, more ...string) []string {
	list = slices.Clone(list)
	for _, statement := range more {
		rights, object, isGrant := strings.Cut(statement, " ON ") // no right has a name with ON
		rights, is := strings.CutPrefix(rights, "GRANT ")
		isGrant = isGrant && is
		i := slices.IndexFunc(list, func(s string) bool {
			_, other, _ := strings.Cut(s, " ON ")
			return s == statement || isGrant && strings.HasPrefix(s, "GRANT ") && other == object
		})
		switch {
		case i < 0:
			list = append(list, statement)
		case isGrant:
			had, _, _ := strings.Cut(list[i], " ON ")
			for right := range strings.SplitSeq(rights, ", ") {
				if !slices.Contains(strings.Split(strings.TrimPrefix(had, "GRANT "), ", "), right) {
					had += ", " + right
				}
			}
			list[i] = had + " ON " + object
		}
	}
	return list
}

// MissingRights are the GRANT statements for what a role lacks.
type MissingRights []string

const lacksRights = "the role lacks rights; have the tables' owner execute: "

func (m MissingRights) Error() string { return lacksRights + strings.Join(m, "; ") }

func (MissingRights) Kind() failure.Kind { return failure.Precondition }

// ParseMissingRights returns the MissingRights with this text; nil if the text is another error's.
func ParseMissingRights(text string) MissingRights {
	grants, is := strings.CutPrefix(text, lacksRights)
	if !is {
		return nil
	}
	return strings.Split(grants, "; ")
}

// RightsError returns an error that names the missing rights, given as GRANT statements; nil if none is missing.
func RightsError(grants []string) error {
	if len(grants) == 0 {
		return nil
	}
	return fmt.Errorf("the role lacks rights; nothing was changed; have the tables' owner execute: %s",
		strings.Join(slices.Sorted(slices.Values(AddGrants(nil, grants...))), "; "))
}
