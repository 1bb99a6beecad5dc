package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/tasks/policy"
)

func confirmRun(
	cmd *cobra.Command, server *rpc.Server, client cleanupd.Client, req *cleanupv1.RunCleanupRequest,
) error {
	if err := rpc.PrintTarget(cmd, server, client); err != nil {
		return err
	}
	if err := printInterrupted(cmd, server, client); err != nil {
		return err
	}
	question := "Delete what these tasks find? It cannot be undone; --preview shows it first."
	if req.GetPlan() != "" {
		dryRun, err := client.GetRun(cmd.Context(), &cleanupv1.GetRunRequest{RunId: req.GetPlan()})
		if err != nil {
			return err
		}
		created := format.Time(dryRun.GetRun().GetCreateTime())
		rpc.PrintFact(cmd.ErrOrStderr(), "Plan", req.GetPlan()+" of "+created)
		question = watch.Total(dryRun.GetRun()) + ". Run exactly this? It cannot be undone."
	} else if err := printTasks(cmd, client, req); err != nil {
		return err
	}
	if !terminal.Confirm(cmd, question) {
		return errors.New("nothing was run")
	}
	return nil
}

// printTasks prints how many tasks a run would have, and their names if tasks were selected.
func printTasks(cmd *cobra.Command, client cleanupd.Client, req *cleanupv1.RunCleanupRequest) error {
	all, err := listTasks(cmd.Context(), client)
	if err != nil {
		return err
	}
	var names []string
	for _, t := range all.GetTasks() {
		if isSelected(t, req) {
			names = append(names, t.GetName())
		}
	}
	text := fmt.Sprintf("all %d", len(names))
	if len(names) < len(all.GetTasks()) {
		text = fmt.Sprintf("%d of %d: %s", len(names), len(all.GetTasks()), cmp.Or(strings.Join(names, ", "), "none"))
	}
	rpc.PrintFact(cmd.ErrOrStderr(), "Tasks", text)
	return nil
}

func isSelected(t *cleanupv1.Task, req *cleanupv1.RunCleanupRequest) bool {
	name, skipped := t.GetName(), req.GetSkipTasks()
	if slices.Contains(skipped, name) ||
		(isPolicy(t) && slices.Contains(skipped, policy.All)) {
		return false
	}
	return slices.Contains(req.GetTasks(), name) || (len(req.GetTasks()) == 0 && !t.GetDisabled())
}
