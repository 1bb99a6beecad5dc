package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/timezone"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Schedule says when runs of the whole pipeline start automatically.
type Schedule struct {
	Cron            string     // five fields; empty: Once
	MoreCrons       []string   // beside Cron
	Once            *time.Time // nil: Cron
	TimeZone        string     // of Cron and MoreCrons, an IANA name
	Enabled         bool
	MaxDuration     time.Duration // of its runs; 0: no limit
	ContinueOnError bool          // whether its runs go on after a failed task
	NextPlan        string        // the dry run that the next run does; empty: none

	NextRunTime *time.Time // nil: none is due
	LastRunID   string     // empty: none, or it has been deleted
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
	if !s.ContinueOnError {
		when += ", until a task fails"
	}
	if s.NextPlan != "" {
		when += ", the next run by plan " + s.NextPlan
	}
	return when
}

// crons are all of its expressions.
func (s *Schedule) crons() []string { return slices.Concat([]string{s.Cron}, s.MoreCrons) }

// defaultCron is when runs start if nothing else is said.
const defaultCron = "0 4 * * *"

// mostCrons is how many expressions a schedule may have beside the first one.
const mostCrons = 20

// complete fills in what was omitted, by the database's clock and time zone, and sets the next time, or fails with
// InvalidError.
func (s *Schedule) complete(ctx context.Context, db campaign.Querier) error {
	var now time.Time
	var setting string
	if err := db.QueryRow(ctx, "SELECT clock_timestamp(), current_setting('TimeZone')").
		Scan(&now, &setting); err != nil {
		return err
	}
	return s.completeAt(now, setting)
}

// completeAt is complete at a moment in a database with this TimeZone setting.
func (s *Schedule) completeAt(now time.Time, setting string) error {
	var wrong InvalidError
	say := func(field string, problem any) {
		wrong.Add("schedule."+field, fmt.Sprint(problem))
	}
	if s.TimeZone == "" {
		s.TimeZone = timezone.Of(setting)
	}
	zone, err := timezone.Load(s.TimeZone)
	if err != nil {
		say("time_zone", fmt.Sprintf("%q is not an IANA time zone, such as Europe/Berlin", s.TimeZone))
		zone = time.UTC
	}
	if problem := outOfRange(s.MaxDuration); problem != "" {
		say("max_duration", problem)
	}
	next := s.Once
	switch {
	case s.Once != nil && (s.Cron != "" || len(s.MoreCrons) > 0):
		say("once", "is another way to say when than cron and more_crons: only one may be given")
	case s.Once != nil:
		if s.Enabled && !s.Once.After(now) {
			say("once", "must be in the future")
		}
	case len(s.MoreCrons) > mostCrons:
		say("more_crons", fmt.Sprintf("has %d expressions: %d at most", len(s.MoreCrons), mostCrons))
	default:
		s.Cron = cmp.Or(s.Cron, defaultCron)
		var crons InvalidError
		next, crons = s.earliest(now, zone)
		wrong = append(wrong, crons...)
	}
	if wrong != nil {
		return wrong
	}
	if s.NextRunTime = next; !s.Enabled {
		s.NextRunTime = nil
	}
	return nil
}

// earliest is the first time of any of the expressions after now, and what is wrong with them; nil: nothing.
func (s *Schedule) earliest(now time.Time, zone *time.Location) (first *time.Time, wrong InvalidError) {
	for i, expression := range s.crons() {
		field := "schedule.cron"
		if i > 0 {
			field = fmt.Sprintf("schedule.more_crons[%d]", i-1)
		}
		times, err := parseCron(expression, zone)
		if err != nil {
			wrong.Add(field, err.Error())
			continue
		}
		if next := times.next(now); first == nil || next.Before(*first) {
			first = &next
		}
	}
	return first, wrong
}

// following is the next time of a stored schedule after now; nil when there is none.
func (s *Schedule) following(now time.Time) (*time.Time, error) {
	if s.Once != nil {
		return nil, nil
	}
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		return nil, err
	}
	next, wrong := s.earliest(now, zone)
	if wrong != nil {
		return nil, wrong
	}
	return next, nil
}

// The starts that are told in advance: those of a while, but no fewer and no more than so many.
const (
	upcomingFor  = 7 * 24 * time.Hour
	fewestStarts = 5
	mostStarts   = 100
)

// Upcoming returns the next starts, the soonest first; none if none is due.
func (s *Schedule) Upcoming() (starts []time.Time, err error) {
	for next := s.NextRunTime; next != nil && len(starts) < mostStarts; {
		if len(starts) >= fewestStarts && next.Sub(starts[0]) >= upcomingFor {
			break
		}
		starts = append(starts, *next)
		if next, err = s.following(*next); err != nil {
			return nil, err
		}
	}
	return starts, nil
}

// Schedule reads the schedule: the default one, not enabled, if there is none yet.
func (m *Manager) Schedule(ctx context.Context) (*Schedule, error) {
	s, err := readSchedule(ctx, m.calls, "")
	if errors.Is(err, pgx.ErrNoRows) {
		s = &Schedule{ContinueOnError: true}
		err = s.complete(ctx, m.calls)
	}
	return s, err
}

func readSchedule(ctx context.Context, db campaign.Querier, which string) (*Schedule, error) {
	s := &Schedule{}
	var microseconds int64
	err := db.QueryRow(ctx, `SELECT COALESCE(cron, ''), more_crons, once, time_zone, enabled, COALESCE(extract(epoch
		FROM max_duration) * 1000000, 0)::bigint,
		continue_on_error, next_run_time, COALESCE(last_run_id::text, ''), COALESCE(next_plan::text, '')
			FROM cleanupd.schedule `+which).
		Scan(
			&s.Cron,
			&s.MoreCrons,
			&s.Once,
			&s.TimeZone,
			&s.Enabled,
			&microseconds,
			&s.ContinueOnError,
			&s.NextRunTime,
			&s.LastRunID,
			&s.NextPlan,
		)
	s.MaxDuration = time.Duration(microseconds) * time.Microsecond
	return s, err
}

// SetSchedule replaces the schedule, and returns it as stored. It fails with InvalidError. A run that became due during
// another one stays due, unless the schedule is disabled.
func (m *Manager) SetSchedule(ctx context.Context, s Schedule) (stored *Schedule, err error) {
	err = pgx.BeginFunc(ctx, m.calls, func(tx pgx.Tx) error {
		before, err := readSchedule(ctx, tx, "FOR UPDATE") // which comes before any other lock
		if errors.Is(err, pgx.ErrNoRows) {
			before, err = &Schedule{}, nil
		}
		if err != nil {
			return err
		}
		if err := m.keepOwn(ctx, tx); err != nil {
			return err
		}
		if s.NextPlan != "" {
			plan, err := planOf(ctx, tx, s.NextPlan, "schedule.next_plan")
			if err != nil {
				return err
			}
			s.NextPlan = plan.ID
		}
		if err := storeSchedule(
			ctx,
			tx,
			s,
			`DO UPDATE
				SET cron = excluded.cron, more_crons = excluded.more_crons, once = excluded.once,
				time_zone = excluded.time_zone, enabled = excluded.enabled,
			max_duration = excluded.max_duration, continue_on_error = excluded.continue_on_error,
				next_run_time = excluded.next_run_time, next_plan = excluded.next_plan, timeline = excluded.timeline,
				pending = schedule.pending AND excluded.enabled`,
		); err != nil {
			return err
		}
		if stored, err = readSchedule(ctx, tx, ""); err != nil {
			return err
		}
		return audit.Note(ctx, tx, audit.Details{"from": before.String(), "to": stored.String()})
	})
	if err == nil && stored.Enabled && !m.keepSchedule {
		m.log.Warn(
			"the schedule is enabled, and this replica does not keep it: no run begins by it unless a replica is " +
				"started with --schedule",
		)
	}
	return stored, err
}

// storeSchedule inserts the schedule; orElse is what to do if there is one.
func storeSchedule(ctx context.Context, tx pgx.Tx, s Schedule, orElse string) error {
	if err := s.complete(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(
		ctx,
		`INSERT INTO cleanupd.schedule (cron, more_crons, once, time_zone, enabled, max_duration, continue_on_error,
			next_run_time, next_plan, timeline)
		VALUES (NULLIF($1, ''), COALESCE($2, '{}'::text[]), $3, $4, $5, $6::bigint * interval '1 microsecond', $7, $8,
			$9::text::uuid, `+timeline+`) ON CONFLICT (only_row) `+orElse,
		s.Cron,
		s.MoreCrons,
		s.Once,
		s.TimeZone,
		s.Enabled,
		microseconds(s.MaxDuration),
		s.ContinueOnError,
		s.NextRunTime,
		unlessEmpty(s.NextPlan),
	)
	return err
}
