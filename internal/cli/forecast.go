package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// shownSequences is how many sequences the table shows.
const shownSequences = 10

func NewForecast() *cobra.Command {
	var (
		server rpc.Server
		output format.Output
	)
	cmd := &cobra.Command{
		Use:   "forecast",
		Short: "Show how much the next runs will have to do, whether they keep up, and when id sequences end",
		Long: "Show how many rows of each task are obsolete now and become so in the next days, how long the next run\n" +
			"will work on them, and whether runs keep up. Sequences whose ids end are shown with the date.\n\n" +
			"It counts rows for at most 3 seconds a table, and estimates them from a sample (marked ~) where that takes\n" +
			"longer. After 30 seconds it leaves out the other tasks, and says so.",
		Example: "  cleanupd forecast\n  cleanupd forecast -o json | jq '.tasks[] | select(.trend == " +
			"\"TREND_FALLING_BEHIND\")'",
		Args: flags.NoArguments,
		RunE: rpc.WithClient(&server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			resp, err := client.GetForecast(cmd.Context(), &cleanupv1.GetForecastRequest{})
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if output == format.Table {
				fmt.Fprintln(out, "As of "+format.Time(resp.GetForecastTime()))
			}
			table := forecastTable(resp.GetTasks())
			if err := output.Print(out, resp, table); err != nil || output != format.Table {
				return err
			}
			if idle := len(resp.GetTasks()) - (len(table) - 1); idle > 0 {
				fmt.Fprintf(out, "and %s with nothing due: cleanupd forecast -o json\n",
					format.Count(int64(idle), "task", "tasks"))
			}
			fmt.Fprintf(out, "\n%s\n", sizes(resp.GetDatabase()))
			if problem := resp.GetSequencesProblem(); problem != "" {
				fmt.Fprintf(out, "\n%s\n", terminal.OneLine(problem))
			}
			if len(resp.GetSequences()) == 0 {
				return nil
			}
			fmt.Fprintln(out)
			err = output.Print(out, resp, sequenceTable(resp.GetSequences()))
			if more := len(resp.GetSequences()) - shownSequences; more > 0 {
				fmt.Fprintf(out, "and %d more: cleanupd forecast -o json\n", more)
			}
			return err
		}),
	}
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	return cmd
}

// forecastTable shows tasks that have something to do, or whose number of rows is unknown.
func forecastTable(tasks []*cleanupv1.TaskForecast) []terminal.Row {
	table := []terminal.Row{{"TASK", "DUE NOW", "NEXT RUN", "NEXT 14 DAYS", "TAKES", "TREND"}}
	for _, t := range tasks {
		later := int64(0)
		for _, n := range t.GetDuePerDay() {
			later += n
		}
		known := t.GetTrend() == cleanupv1.Trend_TREND_IN_BALANCE ||
			t.GetBound() == cleanupv1.ForecastBound_FORECAST_BOUND_NOT_SCHEDULED
		if t.GetProblem() == "" && t.GetDueNow() == 0 && t.GetDueNextRun() == 0 && later == 0 && known {
			continue
		}
		about := "~"
		if t.GetExact() {
			about = ""
		}
		row := terminal.Row{t.GetTask(), "", "", "", "", trend(t)}
		if t.DueNow != nil {
			row[1] = about + humanize.Comma(t.GetDueNow())
			row[2] = about + humanize.Comma(t.GetDueNextRun())
			row[3] = about + humanize.Comma(later)
		}
		if t.GetExpectedDuration() != nil {
			row[4] = format.Duration(t.GetExpectedDuration().AsDuration())
		}
		table = append(table, row)
	}
	return table
}

func trend(t *cleanupv1.TaskForecast) string {
	switch {
	case t.GetProblem() != "" && t.DueNow == nil:
		return "unknown: " + t.GetProblem()
	case t.GetProblem() != "":
		return t.GetProblem()
	}
	text := format.EnumName(t.GetTrend())
	if t.GetTrend() == cleanupv1.Trend_TREND_UNSPECIFIED {
		text = "unknown"
	}
	if date := format.Date(t.GetTrendTime()); date != "" {
		preposition := ""
		switch behind := t.GetTrend() == cleanupv1.Trend_TREND_FALLING_BEHIND; {
		case t.GetTrend() == cleanupv1.Trend_TREND_CATCHING_UP:
			preposition = "until "
		case behind && t.GetTrendTime().AsTime().After(time.Now()):
			preposition = "from "
		case behind:
			preposition = "since "
		}
		text += " " + preposition + date
	}
	if t.GetBound() != cleanupv1.ForecastBound_FORECAST_BOUND_UNSPECIFIED {
		text += ": " + format.EnumName(t.GetBound())
	}
	if t.GetFailingTask() != "" {
		text += ", since " + t.GetFailingTask() + " fails"
	}
	return text
}

func sizes(d *cleanupv1.DatabaseForecast) string {
	now := "The database has " + format.Size(d.GetBytes())
	if d.BytesIn_30Days == nil {
		return now + "; how much it grows is known when its tables were sampled for a day."
	}
	return fmt.Sprintf("%s; in 30 days %s (without the cleanup %s), in 90 days %s (%s).", now,
		format.Size(d.GetBytesIn_30Days()), format.Size(d.GetBytesIn_30DaysWithoutCleanup()),
		format.Size(d.GetBytesIn_90Days()), format.Size(d.GetBytesIn_90DaysWithoutCleanup()))
}

// used returns which share of its ids above zero a sequence has already given; "" if it has no such ids.
func used(q *cleanupv1.SequenceForecast) string {
	if q.GetLimit() <= 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*max(float64(q.GetLastValue()), 0)/float64(q.GetLimit()))
}

// sequenceTable shows only the sequences that reach their end first.
func sequenceTable(sequences []*cleanupv1.SequenceForecast) []terminal.Row {
	table := []terminal.Row{{"SEQUENCE", "COLUMNS", "USED", "A DAY", "ENDS"}}
	for _, q := range sequences[:min(len(sequences), shownSequences)] {
		perDay := ""
		if q.ValuesPerDay != nil {
			perDay = humanize.Comma(int64(q.GetValuesPerDay()))
		}
		table = append(table,
			terminal.Row{
				q.GetSequence(), strings.Join(q.GetColumns(), " "), used(q), perDay, format.Date(q.GetLimitTime()),
			})
	}
	return table
}
