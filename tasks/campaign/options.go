package campaign

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Day is always 86,400 seconds long.
const Day = 24 * time.Hour

// MaxDays is the longest delay in XtkOption: its seconds must fit into 32 bits.
const MaxDays = 24_855

// Option is a row of XtkOption that the cleanup reads.
type Option struct {
	// Name is the row's sName, and Field the field of the API's message Options.
	Name, Field string
	// Default applies if the option has no row. It is in days for a delay, and a code for NoStats.
	Default int
	kind    kind
}

type kind int

const (
	delay     kind = iota // 1 to MaxDays days, as seconds in iLongValue, or in sStringValue if the type is text
	code                  // VacuumAnalyze, NoStatistics or AnalyzeOnly, stored in the same columns
	timestamp             // stored in tsTimeStampValue; only the service writes it
)

// AllOptions are in the order of the fields of the API's message.
var AllOptions []Option

func option(name, field string, standard int, k kind) Option {
	o := Option{name, field, standard, k}
	AllOptions = append(AllOptions, o)
	return o
}

// These are the options that Adobe's page describes. To add one, add a line here and a field to the message
// Options, whose comment says what it is for. The service, the command line, the console and the documents use
// these.
var (
	NoStats               = option("XtkCleanup_NoStats", "storage_optimization", VacuumAnalyze, code)
	TrackingStatPurge     = option("NmsCleanup_TrackingStatPurgeDelay", "tracking_stat_purge_delay_days", 365, delay)
	TrackingLogPurge      = option("NmsCleanup_TrackingLogPurgeDelay", "tracking_log_purge_delay_days", 365, delay)
	BroadLogPurge         = option("NmsCleanup_BroadLogPurgeDelay", "broad_log_purge_delay_days", 180, delay)
	RecycledDeliveryPurge = option("NmsCleanup_RecycledDeliveryPurgeDelay", "recycled_delivery_purge_delay_days", 7,
		delay)
	RejectsPurge         = option("NmsCleanup_RejectsPurgeDelay", "rejects_purge_delay_days", 180, delay)
	VisitorPurge         = option("NmsCleanup_VisitorPurgeDelay", "visitor_purge_delay_days", 30, delay)
	PropositionPurge     = option("NmsCleanup_PropositionPurgeDelay", "proposition_purge_delay_days", 365, delay)
	EventPurge           = option("NmsCleanup_EventPurgeDelay", "event_purge_delay_days", 30, delay)
	EventHistoPurge      = option("NmsCleanup_EventHistoPurgeDelay", "event_histo_purge_delay_days", 365, delay)
	AuditTrailPurge      = option("XtkCleanup_AuditTrailPurgeDelay", "audit_trail_purge_delay_days", 180, delay)
	AppSubscriptionPurge = option("NmsCleanup_AppSubscriptionRcpPurgeDelay", "app_subscription_rcp_purge_delay_days",
		180, delay)
	LastCleanup           = option("NmsCleanup_LastCleanup", "last_cleanup_time", 0, timestamp)
	LastErrorStatCoalesce = option("NmsLastErrorStatCoalesce", "last_error_stat_coalesce_time", 0, timestamp)
)

const (
	VacuumAnalyze = 0
	NoStatistics  = 1
	AnalyzeOnly   = 2
)

func (o Option) IsDelay() bool { return o.kind == delay }

func (o Option) IsOutputOnly() bool { return o.kind == timestamp }

// Check fails if a value is not allowed. The value is in days for a delay, or a code for NoStats.
func (o Option) Check(value int) error {
	switch {
	case o.kind == delay && (value < 1 || value > MaxDays):
		return fmt.Errorf("must be between 1 and %d days, not %d", MaxDays, value)
	case o.kind == code && (value < VacuumAnalyze || value > AnalyzeOnly):
		return fmt.Errorf("must be 0, 1 or 2, not %d", value)
	}
	return nil
}

type Options struct {
	rows         map[string]optionRow // by name
	hiddenReason string               // why stored numbers cannot be read; empty if they can
}

// optionRow has the values of a row. If its type is text, the number is the one that the text contains, if any.
type optionRow struct {
	number *int64
	at     *time.Time
	text   *string
}

// Nearest is SQL that clamps a time to the years 1 to 9999: callers cannot represent infinity and the other years
// that PostgreSQL allows.
func Nearest(at string) string {
	return fmt.Sprintf(
		"CASE WHEN %[1]s IS NOT NULL THEN LEAST(GREATEST(%[1]s::timestamptz, '0001-01-01 00:00Z'), '9999-12-31 "+
			"23:59:59.999999Z') END",
		at,
	)
}

// ReadOptions reads XtkOption. A database without that table has no stored options. If some options may be hidden,
// Delay fails for all of them, because the defaults might delete too much.
func ReadOptions(ctx context.Context, db Querier, c *Catalog) (*Options, error) {
	o := &Options{rows: map[string]optionRow{}}
	t := c.Table("XtkOption")
	number, at, text := "NULL", "NULL", "NULL"
	switch {
	case c.InPlaceOf("XtkOption") != nil:
		o.hiddenReason = c.DescribeMissing("XtkOption")
		return o, nil
	case t == nil:
		return o, nil
	case !t.CanSelect:
		return nil, fmt.Errorf("no SELECT on XtkOption: GRANT SELECT ON %s TO %s", t.Quoted(),
			pgx.Identifier{c.Role}.Sanitize())
	case t.RowSecurity:
		o.hiddenReason = "row security may hide rows of XtkOption"
	case !t.Has("sName", "iLongValue"):
		o.hiddenReason = "XtkOption has no column sName, or no iLongValue"
	default:
		number = "iLongValue"
	}
	if t.Has("tsTimeStampValue") {
		at = "tsTimeStampValue"
		if c.Zone.Name != "" && t.IsLocalDate(at) {
			at = fmt.Sprintf("(%s::timestamp AT TIME ZONE '%s')", at, c.Zone.Name)
		}
		at = Nearest(at)
	}
	if !t.Has("sName") {
		return o, nil
	}
	hidden, err := t.Unreadable(ctx, db, "sname", "ilongvalue", "tstimestampvalue", "idatatype", "sstringvalue")
	switch {
	case err != nil:
		return nil, fmt.Errorf("read XtkOption: %w", err)
	case len(hidden) > 0:
		return nil, fmt.Errorf("no SELECT on XtkOption: GRANT SELECT (%s) ON %s TO %s",
			strings.Join(hidden, ", "), t.Quoted(), pgx.Identifier{c.Role}.Sanitize())
	case t.Has("iDataType", "sStringValue"):
		text = fmt.Sprintf("CASE WHEN iDataType = %d THEN COALESCE(sStringValue, '') END", typeText)
	case t.Has("iDataType"):
		text = fmt.Sprintf("CASE WHEN iDataType = %d THEN '' END", typeText)
	}
	var names []string
	for _, opt := range AllOptions {
		names = append(names, opt.Name)
	}
	rows, _ := db.Query(
		ctx,
		"SELECT sName, "+number+"::bigint, "+at+"::timestamptz, "+text+"::text FROM "+t.Quoted()+
			" WHERE sName = ANY ($1)",
		names,
	)
	var name string
	var row optionRow
	_, err = pgx.ForEachRow(rows, []any{&name, &row.number, &row.at, &row.text}, func() error {
		if row.text != nil {
			row.number = nil
			if number, err := strconv.ParseInt(strings.TrimSpace(*row.text), 10, 64); err == nil {
				row.number = &number
			}
		}
		o.rows[name] = row
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read XtkOption: %w", err)
	}
	return o, nil
}

func (o *Options) Stored(opt Option) bool {
	_, stored := o.rows[opt.Name]
	return stored
}

// Number returns the stored number: seconds for a delay, or the code for NoStats. It is 0 if the option is not
// stored.
func (o *Options) Number(opt Option) int64 {
	if number := o.rows[opt.Name].number; number != nil {
		return *number
	}
	return 0
}

// Text returns the stored text, which is empty unless the row's type is text.
func (o *Options) Text(opt Option) string {
	if text := o.rows[opt.Name].text; text != nil {
		return *text
	}
	return ""
}

func (o *Options) checkNumber(opt Option) error {
	if row := o.rows[opt.Name]; row.text != nil && row.number == nil {
		return fmt.Errorf("option %s is stored as the text %.40q, which is not a number", opt.Name, *row.text)
	}
	return nil
}

// Moment returns the stored time, clamped to the years 1 to 9999; nil if there is none. It fails if the row's type is
// text: texts are not read as times, and ignoring the option would remove a lower bound, so that more would be deleted.
func (o *Options) Moment(opt Option) (*time.Time, error) {
	row := o.rows[opt.Name]
	if row.text != nil {
		return nil, fmt.Errorf(
			"option %s is stored as a text (iDataType %d) and not as a date: not used; delete its row, or make it a "+
				"date",
			opt.Name, typeText,
		)
	}
	if row.at == nil {
		return nil, nil
	}
	at := *row.at
	return &at, nil
}

// Delay returns the stored delay, or the default if none is stored. An unusable stored delay (under one day, or over
// MaxInt32 seconds) is an error; it never falls back to the default.
func (o *Options) Delay(opt Option) (time.Duration, error) {
	if o.hiddenReason != "" {
		return 0, fmt.Errorf("%s: option %s cannot be read", o.hiddenReason, opt.Name)
	}
	if !o.Stored(opt) {
		return time.Duration(opt.Default) * Day, nil
	}
	if err := o.checkNumber(opt); err != nil {
		return 0, fmt.Errorf("%w: not used", err)
	}
	seconds := o.Number(opt)
	switch {
	case seconds < int64(Day/time.Second):
		return 0, fmt.Errorf("option %s is stored as %d seconds, less than a day: not used", opt.Name, seconds)
	case seconds > math.MaxInt32:
		return 0, fmt.Errorf("option %s is stored as %d seconds, more than %d days: not used", opt.Name, seconds,
			MaxDays)
	}
	return time.Duration(seconds) * time.Second, nil
}

func (o *Options) With(values map[string]int) *Options {
	with := *o
	with.rows = maps.Clone(o.rows)
	for name, value := range values {
		seconds := int64(value)
		if name != NoStats.Name {
			seconds *= int64(Day / time.Second)
		}
		with.rows[name] = optionRow{number: &seconds}
	}
	return &with
}

// InForce returns the delays, and the mode of the task statistics, as texts by the names of their options.
func (o *Options) InForce() map[string]string {
	mode, _ := o.Statistics()
	texts := map[string]string{NoStats.Name: fmt.Sprint(mode)}
	for _, opt := range AllOptions {
		if !opt.IsDelay() {
			continue
		}
		days, err := o.Delay(opt)
		texts[opt.Name] = fmt.Sprint(days)
		if err != nil {
			texts[opt.Name] = "not used"
		}
	}
	return texts
}

// Statistics returns the mode of the task statistics. If the stored value cannot be read or is unknown, it returns
// NoStatistics and an error.
func (o *Options) Statistics() (int, error) {
	if o.hiddenReason != "" {
		return NoStatistics, fmt.Errorf("%s: option %s cannot be read: treated as 1", o.hiddenReason, NoStats.Name)
	}
	if !o.Stored(NoStats) {
		return NoStats.Default, nil
	}
	if err := o.checkNumber(NoStats); err != nil {
		return NoStatistics, fmt.Errorf("%w: treated as 1", err)
	}
	value := o.Number(NoStats)
	if value < VacuumAnalyze || value > AnalyzeOnly {
		return NoStatistics, fmt.Errorf("option %s is stored as %d, which is not 0, 1 or 2: treated as 1", NoStats.Name,
			value)
	}
	return int(value), nil
}
