package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// printTarget prints the server, and the database that it cleans, before the user is asked about a change.
func printTarget(cmd *cobra.Command, server *rpc.Server, client rpc.CleanupClient) error {
	about, err := client.GetServer(cmd.Context(), &cleanupv1.GetServerRequest{})
	if err != nil {
		return err
	}
	database := about.GetDatabase()
	if about.GetDatabaseHost() != "" { // an older server does not have it
		database += " on " + about.GetDatabaseHost()
	}
	if about.GetInstance() != "" {
		database += ", instance " + about.GetInstance()
	}
	w := cmd.ErrOrStderr()
	printFact(w, "Server", server.String())
	printFact(w, "Database", database)
	return nil
}

// printFact prints a line about what the user is asked to confirm.
func printFact(w io.Writer, name, text string) { fmt.Fprintf(w, "%-9s %s\n", name, text) }

// confirmRun shows what a run would be about, and asks for confirmation.
func confirmRun(
	cmd *cobra.Command, server *rpc.Server, client rpc.CleanupClient, req *cleanupv1.RunCleanupRequest,
) error {
	if err := printTarget(cmd, server, client); err != nil {
		return err
	}
	question := "Delete what these tasks find? It cannot be undone; --preview shows it first."
	if req.GetPlan() != "" {
		dryRun, err := client.GetRun(cmd.Context(), &cleanupv1.GetRunRequest{RunId: req.GetPlan()})
		if err != nil {
			return err
		}
		created := format.Time(dryRun.GetRun().GetCreateTime())
		printFact(cmd.ErrOrStderr(), "Plan", req.GetPlan()+" of "+created)
		question = watch.Total(dryRun.GetRun()) + ". Run exactly this? It cannot be undone."
	} else if err := printTasks(cmd, client, req); err != nil {
		return err
	}
	if !terminal.Confirm(cmd, question) {
		return errors.New("nothing was run")
	}
	return nil
}

// printTasks prints how many tasks a run would have, and which if they are selected.
func printTasks(cmd *cobra.Command, client rpc.CleanupClient, req *cleanupv1.RunCleanupRequest) error {
	all, err := listTasks(cmd.Context(), client)
	if err != nil {
		return err
	}
	var names []string
	for _, t := range all.GetTasks() {
		selected := len(req.GetTasks()) == 0 || slices.Contains(req.GetTasks(), t.GetName())
		if selected && !slices.Contains(req.GetSkipTasks(), t.GetName()) {
			names = append(names, t.GetName())
		}
	}
	text := fmt.Sprintf("all %d", len(names))
	if len(names) < len(all.GetTasks()) {
		text = fmt.Sprintf("%d of %d: %s", len(names), len(all.GetTasks()), cmp.Or(strings.Join(names, ", "), "none"))
	}
	printFact(cmd.ErrOrStderr(), "Tasks", text)
	return nil
}
