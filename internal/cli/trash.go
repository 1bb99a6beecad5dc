package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

func NewTrash() *cobra.Command {
	var (
		server rpc.Server
		output format.Output
	)
	cmd := &cobra.Command{
		Use:   "trash",
		Short: "Show and bring back what runs with undo have deleted",
		Long: "Runs with --undo keep what they delete in the trash for a while: rows, with those that foreign keys delete\n" +
			"with them, and dropped tables, partitions and views.",
		Example: "  cleanupd run --undo 72h\n  cleanupd trash list\n  cleanupd trash restore RUN",
		Args:    flags.OnlyCommands,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	server.AddFlags(cmd)
	cmd.AddCommand(newListTrash(&server, &output), newRestoreTrash(&server, &output), newPurgeTrash(&server, &output))
	for _, c := range cmd.Commands() {
		output.AddFlag(c)
	}
	return cmd
}

const maxTrash = 1000 // the largest page

func newListTrash(server *rpc.Server, output *format.Output) *cobra.Command {
	var limit int32
	cmd := &cobra.Command{
		Use:     "list [RUN]",
		Short:   "List what is in the trash, of all runs or of one, never the rows themselves",
		Example: "  cleanupd trash list\n  cleanupd trash list 4f1044",
		Args:    cobra.MaximumNArgs(1),
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) (err error) {
			req := &cleanupv1.ListTrashRequest{}
			if len(args) > 0 {
				if req.RunId, err = runID(cmd.Context(), client, args[0]); err != nil {
					return err
				}
			}
			list, err := rpc.List(limit, maxTrash, func(size int32, token string) (*cleanupv1.ListTrashResponse, int, error) {
				req.PageSize, req.PageToken = size, token
				page, err := client.ListTrash(cmd.Context(), req)
				return page, len(page.GetEntries()), err
			})
			if err != nil {
				return err
			}
			defer rpc.PrintMore(cmd.ErrOrStderr(), list)
			return output.Print(cmd.OutOrStdout(), list, trashTable(list.GetEntries()))
		}),
	}
	rpc.AddLimitFlag(cmd.Flags(), &limit)
	return cmd
}

func trashTable(entries []*cleanupv1.TrashEntry) []terminal.Row {
	rows := []terminal.Row{{"RUN", "TASK", "TABLE", "KIND", "ROWS", "SIZE", "EXPIRES"}}
	for _, e := range entries {
		expires := "while the run works"
		if e.GetExpireTime() != nil {
			expires = format.Time(e.GetExpireTime())
		}
		rows = append(rows, terminal.Row{
			e.GetRunId(), e.GetTask(), e.GetTable(), format.EnumName(e.GetKind()), humanize.Comma(e.GetRows()),
			humanize.IBytes(uint64(e.GetBytes())), expires,
		})
	}
	return rows
}

func newRestoreTrash(server *rpc.Server, output *format.Output) *cobra.Command {
	var (
		req cleanupv1.RestoreTrashRequest
		all bool
	)
	cmd := &cobra.Command{
		Use:   "restore RUN",
		Short: "Bring back what a run has deleted, and show the progress",
		Long: "Bring back what a run has deleted, and show the progress. A row whose key exists again stays in the trash.\n" +
			"So does one that its table refuses, and the status is 1: correct that, and restore again. Triggers fire as for\n" +
			"any INSERT.\n" +
			"Rows that come back into another schema (--into) leave the trash, too: afterwards they cannot return to their\n" +
			"original tables.",
		Example: "  cleanupd trash restore 4f1044\n  cleanupd trash restore 4f1044 --table orders --key 17 --key 18\n" +
			"  cleanupd trash restore 4f1044 --into restored",
		Args:              flags.OneArgument("the id of one run"),
		ValidArgsFunction: rpc.FirstArgument(rpc.Complete(server, knownRuns(&cleanupv1.ListRunsRequest{}, anyRun))),
		RunE: withRun(server, func(cmd *cobra.Command, client cleanupd.Client, id string, _ []string) error {
			req.RunId, req.Detach = id, true
			started, err := client.RestoreTrash(cmd.Context(), &req)
			if err != nil {
				return err
			}
			first, err := started.Recv()
			if err != nil {
				return err
			}
			stream, err := client.WatchRun(cmd.Context(), &cleanupv1.WatchRunRequest{RunId: first.GetEvent().GetRunId()})
			if err != nil {
				return err
			}
			w := watch.NewRun(cmd.Context(), server, client, stream)
			if err := w.Follow(watch.NewPrinter(*output, cmd, server, all)); err != nil {
				return err
			}
			r, err := client.GetRun(cmd.Context(), &cleanupv1.GetRunRequest{RunId: w.ID()})
			if err != nil {
				return err
			}
			return stays(r.GetRun())
		}),
	}
	f := cmd.Flags()
	f.StringArrayVar(&req.Tasks, "task", nil, "only what this task deleted; may be repeated (default all)")
	f.StringArrayVar(&req.Tables, "table", nil, "only what belongs into this table; may be repeated (default all)")
	f.StringArrayVar(&req.Keys, "key", nil,
		"with one --table: only the row with this key, VALUE or COLUMN=VALUE,COLUMN=VALUE; may be repeated (default all)")
	f.StringVar(&req.IntoSchema, "into", "",
		"a new schema, whose tables have neither constraints nor indexes (default the original tables)")
	watch.AddAllFlag(f, &all)
	flags.WithoutVariable(f, "task", "table", "key", "into") // what comes back must be typed
	return cmd
}

// stays returns an error if a restore left something in the trash because a table rejected it.
func stays(restore *cleanupv1.Run) error {
	var rows, tables int64
	for _, t := range restore.GetResults() {
		rows, tables = rows+t.GetRowsFailed(), tables+t.GetTablesRetained()
	}
	if rows+tables == 0 {
		return nil
	}
	var parts []string
	if rows > 0 {
		parts = append(parts, format.Count(rows, "row", "rows"))
	}
	if tables > 0 {
		parts = append(parts, format.Count(tables, "dropped table", "dropped tables"))
	}
	return fmt.Errorf("not restored: %s, which the trash keeps; correct the reasons above, and restore again",
		strings.Join(parts, ", "))
}

func newPurgeTrash(server *rpc.Server, output *format.Output) *cobra.Command {
	var (
		run, table string
		olderThan  time.Duration
		where      []string
		all, yes   bool
	)
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Delete what is in the trash for good, before it expires",
		Long: "Delete what is in the trash for good, before it expires: what matches all flags. With --where, only\n" +
			"some rows, such as those of a person who is to be forgotten, and those that the same run deleted and that refer\n" +
			"to them by foreign keys, without which these cannot come back.",
		Example: "  cleanupd trash purge --run 4f1044\n  cleanupd trash purge --table customer --where id=17\n" +
			"  cleanupd trash purge --all",
		Args: flags.NoArguments,
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) (err error) {
			req := &cleanupv1.PurgeTrashRequest{Table: table, Where: map[string]string{}}
			if len(where) > 0 && table == "" {
				return flags.Errorf("--where needs --table")
			}
			switch some := run != "" || table != "" || cmd.Flags().Changed("older-than"); {
			case all && some:
				return flags.Errorf("give either --all or --run, --table or --older-than")
			case all:
				req.OlderThan = durationpb.New(0)
			case !some:
				return flags.Errorf("give --run, --table or --older-than, or --all")
			}
			if run != "" {
				if req.RunId, err = runID(cmd.Context(), client, run); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("older-than") {
				req.OlderThan = durationpb.New(olderThan)
			}
			for _, w := range where {
				column, value, ok := strings.Cut(w, "=")
				if !ok {
					return flags.Errorf("--where must be COLUMN=VALUE, not %q", w)
				}
				req.Where[column] = value
			}
			if !yes {
				if !terminal.CanAsk() {
					return flags.Errorf("there is no terminal to ask on: give --yes")
				}
				question := fmt.Sprintf("Delete rows of %s with %s, and those that refer to them,", table,
					strings.Join(where, " and "))
				if len(where) == 0 {
					if question, err = purged(cmd.Context(), client, req); err != nil {
						return err
					}
				}
				if !terminal.Confirm(cmd, question+" for good?") {
					return fmt.Errorf("nothing was deleted")
				}
			}
			resp, err := client.PurgeTrash(cmd.Context(), req)
			if err != nil {
				return err
			}
			for _, table := range slices.Sorted(maps.Keys(resp.GetLeft())) {
				fmt.Fprintf(cmd.ErrOrStderr(), "Warning: other runs deleted %s of %s that referred to them, which stay in the "+
					"trash: purge these by their own columns\n", format.Rows(resp.GetLeft()[table]), terminal.Printable(table))
			}
			if *output != format.Table {
				return output.Print(cmd.OutOrStdout(), resp, nil)
			}
			of := ""
			if resp.GetTables() != nil {
				of = " of " + strings.Join(resp.GetTables(), ", ")
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "deleted %s%s for good\n", format.Count(resp.GetRows(), "row", "rows"), of)
			return err
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "everything that is in the trash")
	f.StringVar(&run, "run", "", "only what this run deleted (default all runs)")
	f.StringVar(&table, "table", "", "only what belongs into this table (default all)")
	flags.DurationVar(f, &olderThan, "older-than", 0, "only what was deleted at least so long ago (default anything)")
	f.StringArrayVar(&where, "where", nil,
		"with --table: only rows with COLUMN=VALUE and those that refer to them; may be repeated, and all must match")
	f.BoolVar(&yes, "yes", false, "do not ask")
	flags.WithoutVariable(f, "all", "run", "table", "older-than", "where") // what is deleted for good must be typed
	return cmd
}

// purged says what a purge without conditions on rows would delete.
func purged(ctx context.Context, client cleanupd.Client, req *cleanupv1.PurgeTrashRequest) (string, error) {
	var rows int64
	tables, runs := map[string]bool{}, map[string]bool{}
	list := &cleanupv1.ListTrashRequest{RunId: req.GetRunId(), PageSize: maxTrash}
	for {
		page, err := client.ListTrash(ctx, list)
		if err != nil {
			return "", err
		}
		for _, e := range page.GetEntries() {
			young := time.Since(e.GetCreateTime().AsTime()) < req.GetOlderThan().AsDuration()
			other := req.GetTable() != "" && !isNamed(e.GetTable(), req.GetTable()) &&
				!isNamed(e.GetParentTable(), req.GetTable())
			if young || other || e.GetExpireTime() == nil {
				continue
			}
			rows += e.GetRows()
			tables[e.GetTable()], runs[e.GetRunId()] = true, true
		}
		switch list.PageToken = page.GetNextPageToken(); {
		case list.GetPageToken() != "":
		case len(tables) == 0:
			return "Delete all that matches", nil
		default:
			return fmt.Sprintf("Delete %s of %s, from %s,", format.Count(rows, "row", "rows"),
				format.Count(int64(len(tables)), "table", "tables"), format.Count(int64(len(runs)), "run", "runs")), nil
		}
	}
}

// isNamed reports whether table, which may lack the schema and the quotes, names the table with a quoted name.
func isNamed(quoted, table string) bool {
	schema, name, ok := campaign.SplitQuoted(quoted)
	return ok && campaign.Names(table, schema, name)
}
