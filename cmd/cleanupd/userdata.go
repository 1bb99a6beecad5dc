package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"google.golang.org/grpc"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service"
)

func newUserData() *cobra.Command {
	var server target
	cmd := &cobra.Command{
		Use:   "userdata",
		Short: "Find and erase one person's data in AEM Forms",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	server.flags(cmd)
	cmd.AddCommand(newFind(&server), newErase(&server), newReceipts(&server))
	return cmd
}

// variablesFlag adds the flag that names variables of workflows to search.
func variablesFlag(f *pflag.FlagSet, given *[]string) {
	f.StringArrayVar(given, "variable", nil, "APPLICATION/WORKFLOW or APPLICATION/WORKFLOW:VARIABLE: look for the user id there, too; WORKFLOW includes its folders; may be repeated")
}

// parseVariables reads the flag.
func parseVariables(given []string) (list []*cleanupv1.WorkflowVariable, err error) {
	for _, text := range given {
		path, variable, _ := strings.Cut(text, ":")
		application, workflow, ok := strings.Cut(path, "/")
		if !ok || application == "" || workflow == "" {
			return nil, usagef("--variable is APPLICATION/WORKFLOW or APPLICATION/WORKFLOW:VARIABLE, not %q", text)
		}
		list = append(list, &cleanupv1.WorkflowVariable{Application: application, Workflow: workflow, Variable: variable})
	}
	return list, nil
}

func newFind(server *target) *cobra.Command {
	var variables []string
	cmd := &cobra.Command{
		Use:   "find USER",
		Short: "Find every trace of a user id that the Forms database reveals",
		Args:  oneUser,
		RunE: withConn(server, func(cmd *cobra.Command, conn *grpc.ClientConn, args []string) error {
			list, err := parseVariables(variables)
			if err != nil {
				return err
			}
			found, err := cleanupv1.NewUserDataServiceClient(conn).FindUserData(cmd.Context(), &cleanupv1.FindUserDataRequest{UserId: args[0], Variables: list})
			if err != nil {
				return err
			}
			return printFound(cmd.OutOrStdout(), found)
		}),
	}
	variablesFlag(cmd.Flags(), &variables)
	return cmd
}

// oneUser accepts one user id.
func oneUser(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%s takes the user id, a principal's canonical name; see %s --help", cmd.CommandPath(), cmd.CommandPath())
	}
	return nil
}

// printFound prints what was found, and what cannot be.
func printFound(w io.Writer, found *cleanupv1.FindUserDataResponse) error {
	fmt.Fprintf(w, "Principals: %s\n", orNone(found.GetPrincipalIds()))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(found.GetProcessInstances()) > 0 {
		fmt.Fprintln(table, "\nPROCESS INSTANCE\tSTATUS\tINVOCATION\tWHY")
	}
	for _, in := range found.GetProcessInstances() {
		var why []string
		for _, r := range in.GetReasons() {
			text := stateName("KIND_", r.GetKind())
			if v := r.GetVariable(); v != nil {
				text += fmt.Sprintf(" %s of %s/%s (%s)", v.GetVariable(), v.GetApplication(), v.GetWorkflow(), stateName("MATCH_", r.GetMatch()))
			}
			why = append(why, text)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", in.GetId(), statusName(in), in.GetLongLivedInvocationId(), strings.Join(why, ", "))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nOrphan tasks: %s\n", orNone(found.GetOrphanTaskIds()))
	for _, what := range found.GetNotSearched() {
		fmt.Fprintf(w, "Not searched: %s\n", what)
	}
	for _, what := range found.GetBlindSpots() {
		fmt.Fprintf(w, "Can not be found: %s\n", what)
	}
	return nil
}

func statusName(in *cleanupv1.ProcessInstance) string {
	switch {
	case in.GetLongLivedInvocationId() == "" && in.GetStatus() == 0:
		return "gone"
	case in.GetStatus() == 2:
		return "complete"
	case in.GetStatus() == 4:
		return "terminated"
	}
	return "running"
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

func newErase(server *target) *cobra.Command {
	var (
		req       cleanupv1.EraseUserDataRequest
		variables []string
		yes       bool
	)
	cmd := &cobra.Command{
		Use:   "erase [USER]",
		Short: "Erase what is found for a user id, or process instances and orphan tasks by their ids",
		Long: "Show what would be erased, ask, and erase it: process instances and orphan tasks, with the documents that nothing\n" +
			"else refers to. What holds the user id only as part of something longer must be given by its own id (--instance).\n" +
			"Interrupting this program does not stop an erasure that has begun. The exit status is 1 if anything was kept.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%s takes one user id, not %d; see %s --help", cmd.CommandPath(), len(args), cmd.CommandPath())
			}
			return nil
		},
		RunE: withConn(server, func(cmd *cobra.Command, conn *grpc.ClientConn, args []string) (err error) {
			if len(args) > 0 {
				req.UserId = args[0]
			}
			if req.Variables, err = parseVariables(variables); err != nil {
				return err
			}
			if byID := len(req.GetProcessInstanceIds())+len(req.GetTaskIds()) > 0; byID == (req.GetUserId() != "") {
				return usagef("give either a user id, or ids of process instances and orphan tasks (--instance, --task)")
			}
			client, dryRun, out := cleanupv1.NewUserDataServiceClient(conn), req.GetDryRun(), cmd.OutOrStdout()
			if !yes && !dryRun && !term.IsTerminal(int(os.Stdin.Fd())) {
				return usagef("there is nobody to ask whether to erase: give --yes, or --dry-run to be told what would be erased")
			}
			if !yes || dryRun {
				req.DryRun = true
				some, err := erase(cmd.Context(), out, client, &req)
				if err != nil || dryRun || !some {
					return err
				}
				fmt.Fprint(out, "\nErase this? It can not be undone. [y/N] ")
				if text := answer(cmd.Context(), cmd.InOrStdin()); text != "y" && text != "yes" {
					return errors.New("nothing was erased")
				}
				req.DryRun = false
			}
			_, err = erase(cmd.Context(), out, client, &req)
			return err
		}),
	}
	f := cmd.Flags()
	variablesFlag(f, &variables)
	f.StringArrayVar(&req.ProcessInstanceIds, "instance", nil, "the id of a process instance; may be repeated")
	f.StringArrayVar(&req.TaskIds, "task", nil, "the id of an orphan task; may be repeated")
	f.StringArrayVar(&req.PrincipalIds, "principal", nil, "which principal of the user id is meant; may be repeated")
	f.BoolVar(&req.DryRun, "dry-run", false, "show what would be erased, and exit")
	f.BoolVar(&yes, "yes", false, "erase without asking")
	return cmd
}

// answer reads a line, in lower case; empty when the context ends first.
func answer(ctx context.Context, in io.Reader) string {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(in).ReadString('\n')
		line <- strings.ToLower(strings.TrimSpace(text))
	}()
	select {
	case text := <-line:
		return text
	case <-ctx.Done():
		return ""
	}
}

// erase requests an erasure, or a dry run, prints its events, and reports whether there was something to erase.
func erase(ctx context.Context, w io.Writer, client cleanupv1.UserDataServiceClient, req *cleanupv1.EraseUserDataRequest) (some bool, err error) {
	done := "erased"
	if req.GetDryRun() {
		done = "would be erased"
	}
	stream, err := client.EraseUserData(ctx, req)
	v := &eraseView{w: w, done: done}
	for err == nil {
		var m *cleanupv1.EraseUserDataResponse
		if m, err = stream.Recv(); err == nil {
			err = v.event(m.GetEvent())
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
		return v.some, err
	case v.left > 0 && !req.GetDryRun():
		return v.some, errors.New("not all of it was erased: see above what stayed, and why")
	}
	return v.some, nil
}

// eraseView prints an erasure, and counts what it has reported so far.
type eraseView struct {
	w                io.Writer
	done             string // "erased", or "would be erased"
	instances, tasks int
	some             bool
	left             int // how many instances and tasks were kept because of a problem
}

func (v *eraseView) event(e *cleanupv1.EraseEvent) (err error) {
	w, done := v.w, v.done
	switch {
	case e.GetInstanceErased() != nil:
		v.instances++
		first := ""
		if e.GetInstanceErased().GetTerminated() {
			first = "terminated and "
		}
		_, err = fmt.Fprintf(w, "process instance %s %s%s%s\n", e.GetInstanceErased().GetId(), first, done, rowsText(e.GetInstanceErased().GetRows()))
	case e.GetTaskErased() != nil:
		v.tasks++
		_, err = fmt.Fprintf(w, "orphan task %s %s%s\n", e.GetTaskErased().GetId(), done, rowsText(e.GetTaskErased().GetRows()))
	case e.GetFileDeleted() != nil:
		_, err = fmt.Fprintf(w, "file %s %s\n", e.GetFileDeleted().GetPath(), done)
	case e.GetLog() != nil:
		_, err = fmt.Fprintf(w, "%s: %s\n", stateName("LOG_LEVEL_", e.GetLog().GetLevel()), e.GetLog().GetMessage())
	case e.GetReceipt() != nil:
		r := e.GetReceipt()
		v.some = v.instances+v.tasks+len(r.GetFiles()) > 0
		if len(r.GetProblems()) > 0 { // some may be about what an erasure by user id leaves out
			v.left = len(r.GetProcessInstanceIds()) + len(r.GetTaskIds()) - v.instances - v.tasks
		}
		_, err = fmt.Fprintf(w, "\n%d process instances, %d orphan tasks, %d files %s%s\n", v.instances, v.tasks, len(r.GetFiles()), done, rowsText(r.GetRows()))
		if err == nil && r.GetId() != "" {
			_, err = fmt.Fprintf(w, "Receipt %s\n", r.GetId())
		}
	}
	return err
}

// rowsText is how many rows of which tables, in parentheses.
func rowsText(rows []*cleanupv1.TableRows) string {
	if len(rows) == 0 {
		return ""
	}
	var parts []string
	for _, r := range rows {
		parts = append(parts, fmt.Sprintf("%d of %s", r.GetRows(), r.GetTable()))
	}
	return " (rows: " + strings.Join(parts, ", ") + ")"
}

func newReceipts(server *target) *cobra.Command {
	var limit int32
	cmd := &cobra.Command{
		Use:   "receipts",
		Short: "List the receipts of erasures, newest first",
		Args:  noArguments,
		RunE: withConn(server, func(cmd *cobra.Command, conn *grpc.ClientConn, _ []string) error {
			if err := checkLimit(limit, service.MaxReceipts); err != nil {
				return err
			}
			list, err := cleanupv1.NewUserDataServiceClient(conn).ListReceipts(cmd.Context(), &cleanupv1.ListReceiptsRequest{PageSize: limit})
			if err != nil {
				return err
			}
			defer tellOfMore(cmd.ErrOrStderr(), list.GetNextPageToken(), service.MaxReceipts)
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "RECEIPT\tWHEN\tWHO\tINSTANCES\tTASKS\tFILES\tSUCCEEDED")
			for _, r := range list.GetReceipts() {
				fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%d\t%t\n", r.GetId(), r.GetCreateTime().AsTime().Format(time.RFC3339), r.GetRequestedBy(),
					len(r.GetProcessInstanceIds()), len(r.GetTaskIds()), len(r.GetFiles()), r.GetSucceeded())
			}
			return table.Flush()
		}),
	}
	limitFlag(cmd.Flags(), &limit, "of the newest", service.MaxReceipts)
	return cmd
}
