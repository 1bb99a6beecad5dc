package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var (
		o        Options
		rows     int
		full     bool
		policies bool
		only     []int
		chart    string
	)
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Compare ways to delete old rows, side by side, on a private PostgreSQL",
		Long: "Fill tables, delete their old rows by one unbatched DELETE, by published " +
			"statements and those that job queues\n" +
			"use, and by this service, each on its own copy and with pgbench running unless --alone, and print a " +
			"table.\nIt takes a while, and some gigabytes; compare only figures of one run.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rows < 1_000 {
				return fmt.Errorf("--rows must be 1000 or more, not %d", rows)
			}
			if o.Repeats < 1 {
				return fmt.Errorf("--repeats must be 1 or more, not %d", o.Repeats)
			}
			if most := rows / holdSize; o.Holds < 0 || o.Holds > most {
				return fmt.Errorf("--holds must be 0 to %d for this --rows, not %d", most, o.Holds)
			}
			if chart != "" && (o.Alone || o.Bursts > 0) {
				return errors.New("--chart cannot be combined with --alone or --bursts")
			}
			if chart != "" {
				if _, err := os.Stat(filepath.Dir(chart)); err != nil ||
					!slices.Contains([]string{".svg", ".png", ".pdf"}, filepath.Ext(chart)) {
					return fmt.Errorf("--chart: %q must be an .svg, .png or .pdf file in an existing directory", chart)
				}
			}
			for _, name := range o.Methods {
				if !slices.ContainsFunc(Methods, func(m Method) bool { return m.Name == name }) {
					return fmt.Errorf("--method: unknown method %q", name)
				}
			}
			o.Cells = DefaultCells(rows)
			if full {
				o.Cells = AllCells(rows)
			}
			if policies && (full || chart != "" || o.Holds > 0) {
				return errors.New("--policies cannot be combined with --full, --chart or --holds")
			}
			if policies {
				o.Cells = PolicyCells(rows)
			}
			if len(only) > 0 {
				var chosen []Cell
				for _, n := range only {
					if n < 1 || n > len(o.Cells) {
						return fmt.Errorf("--cell must be 1 to %d, not %d", len(o.Cells), n)
					}
					chosen = append(chosen, o.Cells[n-1])
				}
				o.Cells = chosen
			}
			results, idle, err := Run(cmd.Context(), cmd.ErrOrStderr(), o)
			if err != nil {
				return err
			}
			if o.Bursts > 0 {
				return PrintBursts(cmd.OutOrStdout(), results, idle)
			}
			if err := Print(cmd.OutOrStdout(), results, idle); err != nil || chart == "" {
				return err
			}
			return Draw(chart, results, idle)
		},
	}
	f := cmd.Flags()
	f.IntVar(&rows, "rows", 3_000_000, "how many rows a table has, 1000 or more")
	f.IntVar(&o.Repeats, "repeats", 3, "how often each way is measured; results are medians")
	f.DurationVar(&o.Limit, "limit", 20*time.Second, "how long one measurement may take")
	f.BoolVar(&o.Alone, "alone", false, "measure without pgbench, on an otherwise idle server")
	f.IntVar(&o.Holds, "holds", 0,
		fmt.Sprintf("compare the service without and with so many holds of %d recipients each, instead of all ways",
			holdSize))
	f.DurationVar(&o.Bursts, "bursts", 0,
		"let the application run for this time and rest for as long, by turns, and compare BALANCED and GENTLE")
	f.StringVar(&o.SharedBuffers, "shared-buffers", "",
		"shared_buffers of the private server, such as 1GB (default a quarter of the memory)")
	f.BoolVar(&full, "full", false, "measure all 96 kinds of table instead of six")
	f.BoolVar(&policies, "policies", false, "measure policies on tables of another application instead of a task")
	f.IntSliceVar(&only, "cell", nil, "measure only these kinds of table, by number; may be repeated (default all)")
	f.StringArrayVar(&o.Methods, "method", nil,
		"compare only the baseline and the method with this name; may be repeated (default all)")
	f.StringVar(&chart, "chart", "",
		"write a chart of speed against the application's p99 to this file (.svg, .png or .pdf), and one for each "+
			"further cell")
	return cmd
}
