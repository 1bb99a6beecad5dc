package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/tasks/policy"
)

// maxCompletions is how many of the newest runs or holds are offered.
const maxCompletions = 50

func knownTasks(ctx context.Context, client cleanupd.Client) ([]cobra.Completion, error) {
	resp, err := listTasks(ctx, client)
	return completeTasks(resp.GetTasks()), err
}

func completeTasks(tasks []*cleanupv1.Task) (list []cobra.Completion) {
	for _, t := range tasks {
		list = append(list, cobra.CompletionWithDesc(t.GetName(), t.GetTitle()))
	}
	return list
}

func isPolicy(t *cleanupv1.Task) bool { return t.GetKind() == cleanupv1.TaskKind_TASK_KIND_POLICY }

// skippableTasks also offers all policies together, which share one name.
func skippableTasks(ctx context.Context, client cleanupd.Client) ([]cobra.Completion, error) {
	resp, err := listTasks(ctx, client)
	list := completeTasks(resp.GetTasks())
	if slices.ContainsFunc(resp.GetTasks(), isPolicy) {
		list = append(list, cobra.CompletionWithDesc(policy.All, "All policies"))
	}
	return list, err
}

// knownTables offers only tables whose rows tasks delete or update.
func knownTables(ctx context.Context, client cleanupd.Client) (list []cobra.Completion, err error) {
	basic := &cleanupv1.ListTablesRequest{View: cleanupv1.TableView_TABLE_VIEW_BASIC}
	resp, err := listTables(ctx, client, basic, 0)
	for _, t := range resp.GetTables() {
		if len(t.GetCoveredBy()) > 0 && t.GetKind() != cleanupv1.TableKind_TABLE_KIND_WORK_TABLES {
			_, name, _ := strings.Cut(t.GetName(), ".")
			list = append(list, cobra.CompletionWithDesc(name, strings.Join(t.GetCoveredBy(), ", ")))
		}
	}
	return list, err
}

func knownRuns(request *cleanupv1.ListRunsRequest, filter func(*cleanupv1.Run) bool) rpc.Source {
	return func(ctx context.Context, client cleanupd.Client) (list []cobra.Completion, err error) {
		runs, err := listRuns(ctx, client, maxCompletions, request)
		for _, r := range runs.GetRuns() {
			if filter(r) {
				list = append(list, cobra.CompletionWithDesc(r.GetId(), describeRun(r)))
			}
		}
		return list, err
	}
}

func describeRun(r *cleanupv1.Run) string {
	kind := "run"
	if r.GetDryRun() {
		kind = "dry run"
	}
	text := fmt.Sprintf("%s, %s, %s", kind, format.EnumName(r.GetState()), format.Time(r.GetCreateTime()))
	if r.GetEndTime() != nil {
		text += ", " + strings.TrimPrefix(watch.Total(r), "Total: ")
	}
	return text
}

func anyRun(*cleanupv1.Run) bool { return true }

func isActive(r *cleanupv1.Run) bool { return r.GetEndTime() == nil }

var knownPlans = func() rpc.Source {
	dryRun, succeeded := true, cleanupv1.RunState_RUN_STATE_SUCCEEDED
	return knownRuns(&cleanupv1.ListRunsRequest{DryRun: &dryRun, State: &succeeded}, anyRun)
}()

// trippedGuards offers the guards that refuse the plan given by the flag --plan.
func trippedGuards(server *rpc.Server, plan *string) cobra.CompletionFunc {
	return rpc.Complete(server, func(ctx context.Context, client cleanupd.Client) (list []cobra.Completion, err error) {
		resp, err := client.GetRun(ctx, &cleanupv1.GetRunRequest{RunId: *plan})
		for _, g := range resp.GetRun().GetTrippedGuards() {
			value := fmt.Sprintf("%s,%s,%d", format.EnumName(g.GetGuard()), g.GetTable(), g.GetNumber())
			list = append(list, cobra.CompletionWithDesc(value, watch.DescribeGuard(g)))
		}
		return list, err
	})
}

func knownHolds(ctx context.Context, client cleanupd.Client) (list []cobra.Completion, err error) {
	resp, err := client.ListHolds(ctx, &cleanupv1.ListHoldsRequest{PageSize: maxCompletions})
	for _, h := range resp.GetHolds() {
		list = append(list, cobra.CompletionWithDesc(h.GetId(), holdSubject(h)+": "+h.GetReason()))
	}
	return list, err
}
