package campaign

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// logFamily is a kind of log table: where the mappings name its tables, and what such a table looks like.
type logFamily struct {
	mappingColumn string
	key           string
	columns       []string
}

var (
	deliveryLogs  = logFamily{"sBroadLogSchema", "iBroadLogId", []string{"iDeliveryId", "iStatus", "tsLastModified"}}
	exclusionLogs = logFamily{
		"sBroadLogExclSchema",
		"iBroadLogId",
		[]string{"iDeliveryId", "iStatus", "tsLastModified"},
	}
	trackingLogs = logFamily{"sTrackingLogSchema", "iTrackingLogId", []string{"iDeliveryId", "tsLog"}}
)

func (t *Table) is(family logFamily) bool {
	return t.Has(family.columns...) && slices.Contains(t.keys, strings.ToLower(family.key))
}

// IsDeliveryLog reports whether the table has the unique key and the columns of a delivery or exclusion log.
func (t *Table) IsDeliveryLog() bool { return t.is(deliveryLogs) }

// IsTrackingLog reports whether the table has the unique key and the columns of a tracking log.
func (t *Table) IsTrackingLog() bool { return t.is(trackingLogs) }

// knownLogs are the logs among the known tables.
var knownLogs = []string{"nmsbroadlogrcp", "nmsbroadlogmid", "nmsexcludelogrcp", "nmstrackinglogrcp"}

// mayBeLog reports whether a table that does not look like a log of some family may be one nevertheless: it is of no
// other family, and no other table of the application.
func (t *Table) mayBeLog() bool {
	return !t.IsDeliveryLog() && !t.IsTrackingLog() && (!t.known() || slices.Contains(knownLogs, t.Name))
}

// HasPropositions reports whether the table has the id of a proposition: of 32 bits, or the 64 bits of a database that
// came from Campaign Standard.
func (t *Table) HasPropositions() bool { return t.Has("iPropositionId") || t.Has("biPropositionId") }

// HasAppSubscriptions reports whether the table has the columns of mobile subscriptions.
func (t *Table) HasAppSubscriptions() bool { return t.Has("iMobileAppId", "iDisabled") }

// schemaForm is the form of a schema's name. Beyond ASCII, PostgreSQL's lower case would differ from ours.
var schemaForm = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*):([A-Za-z0-9_]+)$`)

// TableName turns the name of a schema of the application (nms:broadLogRcp) into that of its table as PostgreSQL stores
// it (nmsbroadlogrcp). ok is false if the name does not have the form namespace:name, in ASCII letters, digits and
// underscores.
func TableName(schemaName string) (name string, ok bool) {
	m := schemaForm.FindStringSubmatch(schemaName)
	if m == nil {
		return "", false
	}
	return strings.ToLower(m[1] + m[2]), true
}

// logFamilies are all families of log tables.
var logFamilies = []logFamily{deliveryLogs, exclusionLogs, trackingLogs}

// Logs are the tables of a family of logs.
type Logs struct {
	// Tables are those to clean. Unfit are named by the mappings, too, but do not look like logs: they are left alone.
	Tables, Unfit []*Table
	// Notes say which names were passed over, and why.
	Notes []string
}

// DeliveryLogs returns the delivery-log tables: those that the delivery mappings name, and NmsBroadLogMid. It fails if
// the mappings could not be read.
func (c *Catalog) DeliveryLogs() (Logs, error) {
	return c.logs(deliveryLogs, "nms:broadLogMid")
}

// ExclusionLogs returns the exclusion-log tables that the delivery mappings name, as DeliveryLogs does.
func (c *Catalog) ExclusionLogs() (Logs, error) { return c.logs(exclusionLogs) }

// TrackingLogs returns the tracking-log tables that the delivery mappings name, as DeliveryLogs does.
func (c *Catalog) TrackingLogs() (Logs, error) { return c.logs(trackingLogs) }

func (c *Catalog) logs(family logFamily, builtIn ...string) (l Logs, err error) {
	mapping := c.Table("NmsDeliveryMapping")
	switch {
	case mapping == nil:
		l.Notes = append(l.Notes, "table NmsDeliveryMapping is missing: no mapping names a log table")
	case !mapping.Has(family.mappingColumn):
		l.Notes = append(
			l.Notes,
			fmt.Sprintf(
				"column %s of NmsDeliveryMapping is missing: no mapping names such a log table",
				family.mappingColumn,
			),
		)
	case c.unmapped != nil:
		return l, c.unmapped
	}
	for _, name := range slices.Concat(c.mapped[family.mappingColumn], builtIn) {
		t, problem := c.logTable(name, family)
		switch {
		case problem != "" && slices.Contains(builtIn, name) && t == nil:
			// A module that is not installed need not be reported.
		case problem != "":
			l.Notes = append(l.Notes, problem)
			if t != nil && t.mayBeLog() && !slices.Contains(l.Unfit, t) {
				l.Unfit = append(l.Unfit, t)
			}
		case !slices.Contains(l.Tables, t):
			l.Tables = append(l.Tables, t)
		}
	}
	return l, nil
}

// Mappings are the names that the delivery mappings give, by their columns.
func (c *Catalog) Mappings() map[string][]string { return c.mapped }

// readMappings reads the names that the delivery mappings give. That they cannot be read concerns the tasks alone that
// go by them.
func (c *Catalog) readMappings(ctx context.Context, db Querier) error {
	mapping := c.Table("NmsDeliveryMapping")
	if mapping == nil || !mapping.CanSelect {
		return nil
	}
	var named []string
	for _, family := range logFamilies {
		if mapping.Has(family.mappingColumn) {
			named = append(
				named,
				fmt.Sprintf(
					"SELECT '%[1]s', %[1]s::text FROM %[2]s WHERE %[1]s <> ''",
					family.mappingColumn,
					mapping.Quoted(),
				),
			)
		}
	}
	if named == nil {
		return nil
	}
	var column, name string
	rows, err := db.Query(ctx, strings.Join(named, " UNION ")+" ORDER BY 1, 2")
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&column, &name}, func() error {
			c.mapped[column] = append(c.mapped[column], name)
			return nil
		})
	}
	if err != nil {
		err = fmt.Errorf("read the delivery mappings: %w", err)
	}
	if sqlstate.Of(err) != "" {
		c.unmapped, err = err, nil
	}
	return err
}

// logTable resolves one name. It returns a table that exists but does not look like a log with the problem.
func (c *Catalog) logTable(schemaName string, family logFamily) (t *Table, problem string) {
	name, ok := TableName(schemaName)
	if !ok {
		return nil, fmt.Sprintf(
			"%s in a delivery mapping is %q, which has not the form namespace:name: passed over",
			family.mappingColumn,
			schemaName,
		)
	}
	if t = c.Table(name); t == nil {
		return nil, fmt.Sprintf(
			"%s in a delivery mapping is %q, which names no table: passed over",
			family.mappingColumn,
			schemaName,
		)
	}
	if !t.is(family) {
		return t, fmt.Sprintf(
			"table %s (%s %q in a delivery mapping) does not look like such a log (a unique key %s and the columns "+
				"%s): left alone",
			t.Name,
			family.mappingColumn,
			schemaName,
			family.key,
			strings.Join(family.columns, ", "),
		)
	}
	return t, ""
}
