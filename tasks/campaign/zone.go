package campaign

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
	"github.com/cleanupd/cleanupd/internal/timezone"
)

// Zone is the time zone of columns of type timestamp or date, or of a domain over these. Installations that store
// local times have such columns.
type Zone struct {
	// Name is a value of the setting TimeZone; it is empty for the database's own zone.
	Name string
	// Reason says which zone is used and why; it has no text if no table has such columns.
	Reason message.Message
	// Unknown is set if the application's zone cannot be determined. Name is then the zone in which dates are latest,
	// so that rows that are obsolete only in some zones are retained.
	Unknown bool
	// WrittenIn is Name, or the database's zone if the application's is unknown.
	WrittenIn string
}

const ZoneOption = "WdbcTimeZone"

// latestZone is the zone in which dates are latest. In the zone where they are earliest, UTC+14, they are
// zoneSpread earlier.
const (
	latestZone = "<-12>+12"
	zoneSpread = 26 * time.Hour
)

// After returns a time such that any date after it is after the given time in every zone that the application may
// use.
func (z Zone) After(at time.Time) time.Time {
	if z.Unknown {
		return at.Add(zoneSpread)
	}
	return at
}

// Shown returns SQL that converts a date of any type to a time to show. A date without a time becomes the beginning of
// that day in UTC, in which dates are shown: its beginning in a zone to the east would be on the day before.
func Shown(date string) string {
	return fmt.Sprintf("CASE pg_typeof(%[1]s) WHEN 'date'::regtype THEN %[1]s::timestamp AT TIME ZONE 'UTC' "+
		"ELSE %[1]s::timestamptz END", date)
}

func (t *Table) IsLocalDate(column string) bool {
	return slices.Contains(t.localDates, t.Stored(column))
}

func (c *Catalog) readZone(ctx context.Context, db Querier) error {
	local := func(t *Table) bool { return len(t.localDates) > 0 }
	if !slices.ContainsFunc(c.All(), local) {
		return nil
	}
	var own string
	if err := db.QueryRow(ctx, "SELECT reset_val FROM pg_settings WHERE name = 'TimeZone'").Scan(&own); err != nil {
		return fmt.Errorf("read the time zone: %w", err)
	}
	stored, problem, err := c.storedZone(ctx, db)
	switch {
	case err != nil:
		return fmt.Errorf("read option %s: %w", ZoneOption, err)
	case problem != "":
		c.Zone = Zone{
			Name:      latestZone,
			Unknown:   true,
			WrittenIn: own,
			Reason:    message.TimeZoneUnknown.With("option", ZoneOption, "problem", problem, "zone", own),
		}
	case c.Schema == "": // not Campaign
		c.Zone.Reason = message.Infof("dates without a time zone are read in the database's zone, %s", own)
	case stored == "":
		c.Zone.Reason = message.Infof(
			"dates without a time zone are read in the database's zone, %s: there is no option %s", own, ZoneOption)
	default:
		c.Zone = Zone{
			Name:      stored,
			WrittenIn: stored,
			Reason: message.Infof("dates without a time zone are read in the zone %s, which option %s names", stored,
				ZoneOption),
		}
	}
	return nil
}

// storedZone returns the zone that the option names, which is empty if the option is not stored, or why it is not
// usable.
func (c *Catalog) storedZone(ctx context.Context, db Querier) (zone, problem string, err error) {
	t := c.Table("XtkOption")
	if c.InPlaceOf("XtkOption") != nil {
		return "", "cannot be read: " + c.DescribeMissing("XtkOption"), nil
	}
	if t == nil || !t.Has("sName", "sStringValue") {
		return "", "", nil
	}
	rows, _ := db.Query(ctx, "SELECT DISTINCT btrim(COALESCE(sStringValue, '')) FROM "+t.Quoted()+" WHERE sName = $1",
		ZoneOption)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case sqlstate.Is(err, pgerrcode.InsufficientPrivilege):
		return "", "cannot be read: " + sqlstate.Explain(err), nil
	case err != nil:
		return "", "", err
	case len(names) == 0 && t.RowSecurity:
		return "", "cannot be read: row security may hide it", nil
	case len(names) == 0:
		return "", "", nil
	case len(names) > 1:
		slices.Sort(names)
		return "", fmt.Sprintf("has several values: %.200q", strings.Join(names, ", ")), nil
	}
	if _, err := timezone.Load(names[0]); err != nil { // PostgreSQL accepts any word with a digit as a zone
		return "", fmt.Sprintf("is %.40q, which is not an IANA time zone", names[0]), nil
	}
	var now time.Time
	switch err := db.QueryRow(ctx, "SELECT localtimestamp AT TIME ZONE $1::text", names[0]).Scan(&now); {
	case sqlstate.Is(err, pgerrcode.InvalidParameterValue):
		return "", fmt.Sprintf("is %.40q, a zone that this PostgreSQL lacks", names[0]), nil
	case err != nil:
		return "", "", err
	}
	return names[0], "", nil
}
