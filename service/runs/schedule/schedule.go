// Package schedule computes when runs start: at the times of cron expressions in a time zone, or once. Package store
// stores schedules, and package runs starts the runs.
package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/internal/etag"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/timezone"
	"github.com/cleanupd/cleanupd/tasks/purge/pace"
	"github.com/cleanupd/cleanupd/tasks/trash"
)

// Schedule says when runs of the whole pipeline start.
type Schedule struct {
	Cron            string     // an expression of five fields; "" if Once is set
	MoreCrons       []string   // further expressions besides Cron
	Once            *time.Time // nil if Cron is set
	TimeZone        string     // the IANA name of the time zone of the cron expressions
	Enabled         bool
	MaxDuration     time.Duration  // of a run; 0 for no limit
	ContinueOnError bool           // whether a run continues after a failed task
	PauseStopsClock bool           // whether MaxDuration leaves out pauses
	NextPlan        string         // the dry run whose plan the next run follows; "" if none
	Pace            pace.Pace      // of a run; "" for the default of the service
	Windows         []Window       // the windows in which a run may work; empty for always
	Undo            *time.Duration // how long the trash keeps deleted rows; nil for the default of the service

	NextRunTime *time.Time // nil if no run is due
	LastRunID   string     // "" before the first run, or if that run was pruned
}

// Default is used until another schedule is stored. Complete fills in the rest. Replicas that keep the schedule
// store it.
func Default(enabled bool) Schedule { return Schedule{Enabled: enabled, ContinueOnError: true} }

// Etag leaves out the fields that callers cannot set.
func (s *Schedule) Etag() string {
	var once time.Time
	if s.Once != nil {
		once = s.Once.UTC()
	}
	return etag.Of(s.crons(), once, s.TimeZone, s.Enabled, s.MaxDuration, s.ContinueOnError, s.NextPlan, s.Pace,
		fmt.Sprint(s.Windows), s.PauseStopsClock, s.Undo)
}

func (s *Schedule) WindowsDiffer(other *Schedule) bool {
	if len(s.Windows) == 0 && len(other.Windows) == 0 {
		return false
	}
	return fmt.Sprint(s.Windows) != fmt.Sprint(other.Windows) || s.TimeZone != other.TimeZone || s.Pace != other.Pace
}

func (s *Schedule) String() string {
	when := strings.Join(s.crons(), " and ") + " " + s.TimeZone
	if s.Once != nil {
		when = "once at " + s.Once.Format(time.RFC3339)
	}
	switch {
	case s.TimeZone == "":
		return "none"
	case !s.Enabled:
		when += ", disabled"
	}
	if s.MaxDuration > 0 {
		when += ", for " + s.MaxDuration.String() + " at most"
	}
	if s.PauseStopsClock {
		when += " without pauses"
	}
	if !s.ContinueOnError {
		when += ", until a task fails"
	}
	if s.Pace != "" {
		when += ", " + string(s.Pace)
	}
	if s.Undo != nil {
		when += ", undo for " + s.Undo.String()
	}
	for i, w := range s.Windows {
		when += []string{", in ", " and "}[min(i, 1)] + w.String()
	}
	if s.NextPlan != "" {
		when += ", the next run by plan " + s.NextPlan
	}
	return when
}

func (s *Schedule) crons() []string { return slices.Concat([]string{s.Cron}, s.MoreCrons) }

const defaultCron = "0 4 * * *"

// maxMoreCrons limits the expressions besides Cron.
const maxMoreCrons = 20

// Complete fills in omitted fields, and sets the next time after now. timeZone is the TimeZone setting of the
// database. current is the schedule that s replaces, nil if there is none. It fails with failure.Violations.
func (s *Schedule) Complete(now time.Time, timeZone string, current *Schedule) error {
	var wrong failure.Violations
	if s.TimeZone == "" {
		s.TimeZone = timezone.Of(timeZone)
	}
	zone, err := timezone.Load(s.TimeZone)
	if err != nil {
		wrong.Addf("schedule.time_zone", "%.64q is not an IANA time zone, such as Europe/Berlin", s.TimeZone)
		zone = time.UTC
	}
	if problem := TimeLimitProblem(s.MaxDuration); problem != "" {
		wrong.Add("schedule.max_duration", problem)
	}
	if problem := trash.KeepProblem(s.Undo); problem != "" {
		wrong.Add("schedule.undo", problem)
	}
	wrong = append(wrong, s.invalidWindows()...)
	next := s.Once
	switch {
	case s.Once != nil && (s.Cron != "" || len(s.MoreCrons) > 0):
		wrong.Add("schedule.once", "cannot be given beside the times of cron")
	case s.Once != nil && s.Enabled && !s.Once.After(now):
		if current == nil || !current.Enabled || current.Once == nil || !current.Once.Equal(*s.Once) {
			wrong.Addf("schedule.once", "must be in the future, not %s", s.Once.UTC().Format(time.RFC3339))
			break
		}
		next = current.NextRunTime // other settings change, and the only run has started or is about to
	case s.Once != nil:
	case len(s.MoreCrons) > maxMoreCrons:
		wrong.Addf("schedule.more_crons", "has %d expressions: %d at most", len(s.MoreCrons), maxMoreCrons)
	default:
		s.Cron = cmp.Or(s.Cron, defaultCron)
		var crons failure.Violations
		next, crons = s.earliest(now, zone)
		wrong = append(wrong, crons...)
	}
	if s.NextRunTime = next; !s.Enabled {
		s.NextRunTime = nil
	}
	return wrong.Err()
}

// MaxTimeLimit is 100 years of 365 days.
const MaxTimeLimit = 36_500 * 24 * time.Hour

// TimeLimitProblem returns "" if the limit is valid; 0 means no limit. The least is a microsecond, the resolution of
// the database.
func TimeLimitProblem(limit time.Duration) string {
	if limit == 0 || (time.Microsecond <= limit && limit <= MaxTimeLimit) {
		return ""
	}
	return "must be from a microsecond to 36500 days"
}

func (s *Schedule) earliest(now time.Time, zone *time.Location) (first *time.Time, wrong failure.Violations) {
	for i, expression := range s.crons() {
		times, err := parseCron(expression, zone)
		if err != nil {
			field := "schedule.cron"
			if i > 0 {
				field = fmt.Sprintf("schedule.more_crons[%d]", i-1)
			}
			wrong.Add(field, err.Error())
			continue
		}
		if next := times.next(now); first == nil || next.Before(*first) {
			first = &next
		}
	}
	return first, wrong
}

// Next returns the next time of the cron expressions after now, or nil if the schedule starts only once. The
// schedule must be complete.
func (s *Schedule) Next(now time.Time) (*time.Time, error) {
	if s.Once != nil {
		return nil, nil
	}
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		return nil, err
	}
	next, wrong := s.earliest(now, zone)
	return next, wrong.Err()
}

// These limit what Upcoming returns: the starts within upcomingFor of the first one, but at least fewestStarts and
// at most mostStarts.
const (
	upcomingFor  = 7 * 24 * time.Hour
	fewestStarts = 5
	mostStarts   = 100
)

// Upcoming returns the next starts in order, or none if no run is due.
func (s *Schedule) Upcoming() (starts []time.Time, err error) {
	for next := s.NextRunTime; next != nil && len(starts) < mostStarts; {
		if len(starts) >= fewestStarts && next.Sub(starts[0]) >= upcomingFor {
			break
		}
		starts = append(starts, *next)
		if next, err = s.Next(*next); err != nil {
			return nil, err
		}
	}
	return starts, nil
}
