package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// configuration has the tables of the application that no policy may change, by stored names in lower case, and
// what they contain. Losing their rows breaks the application, or the rules of other tasks.
var configuration = map[string]string{
	"xtkoperator":        "operators",
	"xtkgroup":           "groups of operators",
	"xtkoperatorgroup":   "the members of groups of operators",
	"xtkrights":          "rights of operators",
	"xtkoption":          "options",
	"xtkfolder":          "folders",
	"xtkworkflow":        "workflows",
	"xtkschema":          "schemas of tables",
	"xtksrcschema":       "schemas of tables",
	"xtkform":            "forms",
	"xtkenum":            "enumerations",
	"xtkcounter":         "counters",
	"xtknavtree":         "the navigation",
	"xtkjavascript":      "scripts",
	"xtkjssp":            "pages",
	"xtkspecfile":        "package definitions",
	"nmsdelivery":        "deliveries",
	"nmsrecipient":       "recipients",
	"nmsgroup":           "lists",
	"nmsservice":         "services",
	"nmsoperation":       "campaigns",
	"nmsplan":            "plans",
	"nmsprogram":         "programs",
	"nmsextaccount":      "external accounts",
	"nmsdeliverymapping": "delivery mappings",
	"nmstypology":        "typologies",
	"nmstypologyrule":    "rules of typologies",
	"nmsmobileapp":       "mobile applications",
	"nmswebapp":          "web applications",
	"nmsoffer":           "offers",
	"nmsoffercategory":   "categories of offers",
	"nmsofferenv":        "environments of offers",
	"nmsofferspace":      "spaces of offers",
}

// protected returns why no policy may change a table; empty if one may. If the policy deletes rows, this includes
// tables whose rows foreign keys delete or change with them.
func protected(c *campaign.Catalog, t *campaign.Table, deletes bool) string {
	if why := protectedItself(c, t); why != "" {
		return why
	}
	if !deletes {
		return ""
	}
	for _, d := range t.Dependents() {
		if why := protectedItself(c, d); why != "" {
			return fmt.Sprintf("foreign keys delete or change rows of %s with its rows, and %s", d.Quoted(), why)
		}
	}
	return ""
}

// protectedItself returns why no policy may change a table itself, without regard to foreign keys. Inheritance counts
// both ways: the application also sees the rows of tables that inherit from its own, and a policy changes those of
// tables that inherit from its table.
func protectedItself(c *campaign.Catalog, t *campaign.Table) string {
	why := protectedName(c, t.Schema, t.Name)
	for _, name := range t.Ancestors {
		if rows := configuration[strings.ToLower(name)]; why == "" && rows != "" {
			why = fmt.Sprintf("it inherits from %s, which has the application's configuration: %s", name, rows)
		}
	}
	for _, l := range t.Leaves {
		if inherits := protectedName(c, l.Schema, l.Name); why == "" && inherits != "" {
			why = fmt.Sprintf("%s inherits from it, and %s", pgx.Identifier{l.Schema, l.Name}.Sanitize(), inherits)
		}
	}
	return why
}

func protectedName(c *campaign.Catalog, schema, name string) string {
	rows := configuration[strings.ToLower(name)]
	switch {
	case schema == "cleanupd":
		return "it belongs to this service"
	case schema == "information_schema" || strings.HasPrefix(schema, "pg_"):
		return "it belongs to PostgreSQL"
	case rows != "": // in every schema: other instances have such tables, and so has a service without the profile
		return "it has the application's configuration: " + rows
	case (schema == c.Schema || slices.Contains(c.OtherSchemas, schema)) && campaign.LooksLikeWorkTable(name):
		return "it is a work table, which the application drops with its owner"
	}
	return ""
}
