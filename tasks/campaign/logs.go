package campaign

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

type logFamily struct {
	mappingColumn string   // the column of NmsDeliveryMapping that names such tables
	key           string   // the unique key of such a table
	columns       []string // further columns of such a table
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

func (t *Table) inFamily(family logFamily) bool {
	return t.Has(family.columns...) && slices.Contains(t.keys, strings.ToLower(family.key))
}

func (t *Table) IsDeliveryLog() bool { return t.inFamily(deliveryLogs) }

func (t *Table) IsTrackingLog() bool { return t.inFamily(trackingLogs) }

var knownLogs = []string{"nmsbroadlogrcp", "nmsbroadlogmid", "nmsexcludelogrcp", "nmstrackinglogrcp"}

// mayBeLog reports whether a table that lacks the columns of a log may still be one. A known table may only if it is
// one of the known logs.
func (t *Table) mayBeLog() bool {
	return !t.IsDeliveryLog() && !t.IsTrackingLog() && (!t.isKnown() || slices.Contains(knownLogs, t.Name))
}

// HasPropositions reports whether the table has a column for propositions. Their ids have 32 bits, or 64 in
// databases that came from Campaign Standard.
func (t *Table) HasPropositions() bool { return t.Has("iPropositionId") || t.Has("biPropositionId") }

func (t *Table) HasAppSubscriptions() bool { return t.Has("iMobileAppId", "iDisabled") }

// schemaForm is limited to ASCII, for which PostgreSQL and Go have the same lower case.
var schemaForm = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*):([A-Za-z0-9_]+)$`)

// TableName returns the unquoted name of the table for a schema of the application, such as nmsbroadlogrcp for
// nms:broadLogRcp. ok is false if the schema's name is not of the form namespace:name, in ASCII letters, digits and
// underscores.
func TableName(schemaName string) (name string, ok bool) {
	m := schemaForm.FindStringSubmatch(schemaName)
	if m == nil {
		return "", false
	}
	return strings.ToLower(m[1] + m[2]), true
}

var logFamilies = []logFamily{deliveryLogs, exclusionLogs, trackingLogs}

type Logs struct {
	// Tables are logs. Unfit are tables that the mappings name but that do not look like logs; they are not cleaned.
	Tables, Unfit []*Table
	// Notes say which names were ignored, and why.
	Notes []message.Message
}

// logTables finds the tables of a family that the delivery mappings name, and further ones, only once: each statement
// of each task asks for them.
func (c *Catalog) logTables(family logFamily, builtIn ...string) func() (Logs, error) {
	return sync.OnceValues(func() (l Logs, err error) {
		mapping := c.Table("NmsDeliveryMapping")
		switch {
		case mapping == nil && c.mappingsErr != nil:
			return l, c.mappingsErr
		case mapping == nil:
			l.Notes = append(l.Notes, message.MappingsMissing.With())
		case !mapping.Has(family.mappingColumn):
			l.Notes = append(l.Notes, message.MappingColumnMissing.With("column", family.mappingColumn))
		case c.mappingsErr != nil:
			return l, c.mappingsErr
		}
		for _, name := range slices.Concat(c.mappings[family.mappingColumn], builtIn) {
			t, problem := c.logTable(name, family)
			switch {
			case problem != nil && slices.Contains(builtIn, name) && t == nil:
				// the table belongs to a module that is not installed
			case problem != nil:
				l.Notes = append(l.Notes, *problem)
				if t != nil && t.mayBeLog() && !slices.Contains(l.Unfit, t) {
					l.Unfit = append(l.Unfit, t)
				}
			case !slices.Contains(l.Tables, t):
				l.Tables = append(l.Tables, t)
			}
		}
		return l, nil
	})
}

func (c *Catalog) Mappings() map[string][]string { return c.mappings }

// readMappings reads the delivery mappings. If the server refuses that, or may hide some of them, only the tasks
// that use them fail.
func (c *Catalog) readMappings(ctx context.Context, db Querier) error {
	mapping := c.Table("NmsDeliveryMapping")
	switch {
	case mapping == nil || !mapping.CanSelect:
		return nil
	case mapping.RowSecurity: // the logs that a hidden mapping names would not be found
		c.mappingsErr = fmt.Errorf(
			"read the delivery mappings: row security may hide rows of %s: make the role %s the owner of the table, or "+
				"grant it BYPASSRLS",
			mapping.Name,
			c.Role,
		)
		return nil
	}
	var named []string
	for _, family := range logFamilies {
		if mapping.Has(family.mappingColumn) {
			named = append(named,
				fmt.Sprintf("SELECT '%[1]s', %[1]s::text FROM %[2]s WHERE %[1]s <> ''", family.mappingColumn,
					mapping.Quoted()))
		}
	}
	if named == nil {
		return nil
	}
	var column, name string
	rows, _ := db.Query(ctx, strings.Join(named, " UNION ")+" ORDER BY 1, 2")
	_, err := pgx.ForEachRow(rows, []any{&column, &name}, func() error {
		c.mappings[column] = append(c.mappings[column], name)
		return nil
	})
	if err != nil {
		err = fmt.Errorf("read the delivery mappings: %w", err)
	}
	if sqlstate.Of(err) != "" {
		c.mappingsErr, err = err, nil
	}
	return err
}

// logTable returns both a table and a problem if the table exists, but does not look like a log.
func (c *Catalog) logTable(schemaName string, family logFamily) (t *Table, problem *message.Message) {
	unusable := func(problem string) *message.Message {
		m := message.MappingUnusable.With("column", family.mappingColumn, "schema", strconv.Quote(schemaName),
			"problem", problem)
		return &m
	}
	name, ok := TableName(schemaName)
	if !ok {
		return nil, unusable("does not have the form namespace:name")
	}
	if t = c.InPlaceOf(name); t != nil {
		return t, unusable("is " + t.Kind + ", not a table")
	}
	if t = c.Table(name); t == nil {
		return nil, unusable("names no table")
	}
	if !t.inFamily(family) {
		m := message.NotALog.With("table", t.Name, "column", family.mappingColumn, "schema", strconv.Quote(schemaName),
			"key", family.key, "columns", strings.Join(family.columns, ", "))
		return t, &m
	}
	return t, nil
}
