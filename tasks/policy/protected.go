package policy

import (
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// configuration are the tables of the application that no policy may change, by their stored names, and what they have.
// Losing their rows breaks the application, or the rules of other tasks.
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

// protected returns why no policy may change a table; empty if one may.
func protected(c *campaign.Catalog, t *campaign.Table) string {
	switch {
	case t.Schema == "cleanupd":
		return "it belongs to this service"
	case t.Schema == "information_schema" || strings.HasPrefix(t.Schema, "pg_"):
		return "it belongs to PostgreSQL"
	case c.Schema == "" || t.Schema != c.Schema:
		return ""
	case configuration[t.Name] != "":
		return fmt.Sprintf("it has the application's configuration: %s", configuration[t.Name])
	case campaign.LooksLikeWorkTable(t.Name):
		return "it is a work table, which the application drops with its owner"
	}
	return ""
}
