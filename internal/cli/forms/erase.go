package forms

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

func newErase(server *rpc.Server) *cobra.Command {
	var (
		req       cleanupv1.EraseUserDataRequest
		variables []string
		yes       bool
		output    format.Output
	)
	cmd := &cobra.Command{
		Use:   "erase [USER]",
		Short: "Erase the data of a user id, or process instances and orphan tasks by their ids",
		Long: "Show what would be erased, ask for confirmation, and erase it: process instances and orphan tasks,\n" +
			"with the documents that nothing else refers to. Process instances with the user id only as part of\n" +
			"a longer text must be given by their ids (--process-instance).\n" +
			"Interrupting this program does not stop an erasure that has started, except with --database-url:\n" +
			"the next cleanupd userdata erase or sweep, or a server, then resumes it. The exit status is 1 if\n" +
			"anything could not be erased.",
		Example: "  cleanupd userdata erase bob.smith@example.com --dry-run\n  cleanupd userdata erase " +
			"bob.smith@example.com --variable Claims/apply --yes\n  cleanupd userdata erase --process-instance 30 " +
			"--orphan-task 86",
		Args: atMostOneUser,
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) (err error) {
			if len(args) > 0 {
				req.UserId = args[0]
			}
			if req.Variables, err = parseVariables(variables); err != nil {
				return err
			}
			if byID := len(req.GetProcessInstanceIds())+len(req.GetTaskIds()) > 0; byID == (req.GetUserId() != "") {
				return flags.Errorf("give either a user id, or ids of process instances and orphan tasks " +
					"(--process-instance, --orphan-task)")
			}
			return eraseAfterPreview(cmd, server, client, yes, req.DryRun, "Erase this?", func(dryRun bool) (bool, error) {
				req.DryRun = dryRun
				stream, err := client.EraseUserData(cmd.Context(), &req)
				if err != nil {
					return false, err
				}
				return printErasure(cmd.OutOrStdout(), output, dryRun, stream)
			})
		}),
	}
	output.AddFlag(cmd)
	f := cmd.Flags()
	addVariablesFlag(f, &variables)
	f.StringArrayVar(&req.ProcessInstanceIds, "process-instance", nil, "the id of a process instance; may be repeated")
	f.StringArrayVar(&req.TaskIds, "orphan-task", nil, "the id of an orphan task; may be repeated")
	addPrincipalsFlag(f, &req.PrincipalIds)
	f.BoolVar(&req.DryRun, "dry-run", false, "change nothing, show what would be erased")
	f.BoolVar(&yes, "yes", false, "do not ask")
	f.SetNormalizeFunc(acceptOldNames)
	return cmd
}

func atMostOneUser(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		path := cmd.CommandPath()
		return flags.Errorf("%s takes at most one user id, not %d; see %s --help", path, len(args), path)
	}
	return nil
}

// acceptOldNames accepts the old names of two flags. They were renamed, since $CLEANUPD_TASK is a task of the
// pipeline and $CLEANUPD_INSTANCE is the name of the service.
func acceptOldNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "task":
		name = "orphan-task"
	case "instance":
		name = "process-instance"
	}
	return pflag.NormalizedName(name)
}

// eraseAfterPreview shows a preview, asks for confirmation, and erases. With yes it only erases, and with dryRun it
// only shows the preview. Without a server it first resumes interrupted erasures. erase reports whether it found
// anything.
func eraseAfterPreview(
	cmd *cobra.Command, server *rpc.Server, client cleanupd.Client, yes, dryRun bool, question string,
	erase func(dryRun bool) (found bool, err error),
) error {
	if !yes && !dryRun && !terminal.CanAsk() {
		return flags.Errorf(
			"erasing needs confirmation, and there is no terminal to ask on: give --yes, or --dry-run " +
				"to see what would be erased",
		)
	}
	if server.InProcess() && !dryRun {
		if err := resumeErasures(cmd, client, server); err != nil {
			return stopped(cmd, err)
		}
	}
	if !yes || dryRun {
		found, err := erase(true)
		if err != nil || dryRun || !found {
			return err
		}
		if !terminal.Confirm(cmd, question+" It cannot be undone.") {
			return errors.New("nothing was erased")
		}
	}
	_, err := erase(false)
	if err != nil && server.InProcess() {
		err = stopped(cmd, err)
	}
	return err
}

type eraseMessage interface {
	proto.Message
	GetEvent() *cleanupv1.EraseEvent
}

// printErasure prints the events of an erasure, and reports whether there was anything to erase.
func printErasure[M eraseMessage](
	w io.Writer, output format.Output, dryRun bool, stream interface{ Recv() (M, error) },
) (found bool, err error) {
	v := &eraseView{w: w, erased: "erased"}
	if dryRun {
		v.erased = "would be erased"
	}
	if output != format.Table {
		v.w = io.Discard
	}
	for err == nil {
		var m M
		if m, err = stream.Recv(); err == nil {
			err = v.event(m.GetEvent())
		}
		if err == nil && output != format.Table {
			err = output.PrintMessage(w, m)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return v.found, err
}

type eraseView struct {
	w                io.Writer
	erased           string // "erased", or "would be erased"
	instances, tasks int
	documents        int // documents that a sweep erased from the database
	found            bool
}

func (v *eraseView) event(e *cleanupv1.EraseEvent) (err error) {
	switch {
	case e.GetInstanceErased() != nil:
		v.instances++
		instance := e.GetInstanceErased()
		terminated := ""
		if instance.GetTerminated() {
			terminated = "terminated and "
		}
		_, err = fmt.Fprintf(v.w, "process instance %s %s%s%s\n", instance.GetId(), terminated, v.erased,
			rowsText(instance.GetRows()))
	case e.GetTaskErased() != nil:
		v.tasks++
		task := e.GetTaskErased()
		_, err = fmt.Fprintf(v.w, "orphan task %s %s%s\n", task.GetId(), v.erased, rowsText(task.GetRows()))
	case e.GetDocumentErased() != nil:
		v.documents++
		document := e.GetDocumentErased()
		_, err = fmt.Fprintf(v.w, "document %s of %s %s%s\n", document.GetDocumentId(),
			strings.Join(document.GetSessionIds(), ", "), v.erased, rowsText(document.GetRows()))
	case e.GetFileDeleted() != nil:
		_, err = fmt.Fprintf(v.w, "file %s %s\n", e.GetFileDeleted().GetPath(), v.erased)
	case e.GetLog() != nil:
		_, err = fmt.Fprintf(v.w, "%s: %s\n", format.EnumName(e.GetLog().GetLevel()), e.GetLog().GetMessage())
	case e.GetReceipt() != nil:
		err = v.receipt(e.GetReceipt())
	}
	return err
}

func (v *eraseView) receipt(r *cleanupv1.Receipt) error {
	// the next sweep depends on the documents that this one noted
	noted := r.GetSweep() && len(r.GetProblems()) > 0
	v.found = v.instances+v.tasks+v.documents+len(r.GetFiles()) > 0 || noted
	total := fmt.Sprintf("%d process instances, %d orphan tasks", v.instances, v.tasks)
	if r.GetSweep() {
		total = fmt.Sprintf("%d documents in the database", v.documents)
	}
	_, err := fmt.Fprintf(v.w, "\n%s, %d files %s%s\n", total, len(r.GetFiles()), v.erased, rowsText(r.GetRows()))
	if err == nil && r.GetId() != "" {
		_, err = fmt.Fprintf(v.w, "Receipt %s\n", r.GetId())
	}
	return err
}

// rowsText returns the numbers of rows by table, in parentheses; "" if there are none.
func rowsText(rows []*cleanupv1.TableRows) string {
	if len(rows) == 0 {
		return ""
	}
	return " (rows: " + rowsOfTables(rows) + ")"
}

func rowsOfTables(rows []*cleanupv1.TableRows) string {
	var parts []string
	for _, r := range rows {
		parts = append(parts, fmt.Sprintf("%s of %s", humanize.Comma(r.GetRows()), r.GetTable()))
	}
	return strings.Join(parts, ", ")
}

// resumeErasures waits for the end of the erasures and sweeps that were interrupted, the oldest first. The server in
// this process carries them out, unless another one does.
func resumeErasures(cmd *cobra.Command, client cleanupd.Client, server *rpc.Server) error {
	receipts, err := client.ListReceipts(cmd.Context(), &cleanupv1.ListReceiptsRequest{})
	if err != nil {
		return err
	}
	w := cmd.ErrOrStderr()
	for _, r := range slices.Backward(receipts.GetReceipts()) {
		if r.GetEndTime() != nil || r.GetPurge() != "" {
			continue
		}
		fmt.Fprintf(w, "The erasure %s of %s has not ended, and is resumed first.\n", r.GetId(),
			format.Time(r.GetCreateTime()))
		server.WorkOnErasures()
		for r.GetEndTime() == nil {
			select {
			case <-cmd.Context().Done():
				return cmd.Context().Err()
			case <-time.After(200 * time.Millisecond):
			}
			got, err := client.GetReceipt(cmd.Context(), &cleanupv1.GetReceiptRequest{ReceiptId: r.GetId()})
			if err != nil {
				return err
			}
			r = got.GetReceipt()
		}
		result := "everything was erased"
		if !r.GetSucceeded() {
			result = "not everything was erased: see cleanupd userdata receipt " + r.GetId()
		}
		fmt.Fprintf(w, "The erasure %s has ended; %s.\n", r.GetId(), result)
	}
	return nil
}

// stopped explains the error of a command without a server that was interrupted during an erasure.
func stopped(cmd *cobra.Command, err error) error {
	if cmd.Context().Err() == nil {
		return err
	}
	return errors.New("an erasure that has started stops now: the next cleanupd userdata erase or sweep, or a server, " +
		"resumes it")
}

func newSweep(server *rpc.Server) *cobra.Command {
	var (
		yes, dryRun bool
		output      format.Output
	)
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Delete the documents whose tasks and form data do not exist",
		Long: "Show what would be deleted, ask for confirmation, and delete it: the documents of the document\n" +
			"storage whose every session names a task or form data that does not exist. A document of any other\n" +
			"session is kept. A missing task may be about to be stored: a document is deleted only if another\n" +
			"sweep, not a dry run, found the same at least an hour before, and if its files are older than a\n" +
			"day. The exit status is 1 if a document could not be deleted.",
		Example: "  cleanupd userdata sweep --dry-run\n  cleanupd userdata sweep --yes",
		Args:    flags.NoArguments,
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			question := "Delete these documents, and note the ones that a later sweep may delete?"
			return eraseAfterPreview(cmd, server, client, yes, dryRun, question, func(dryRun bool) (bool, error) {
				stream, err := client.SweepDocuments(cmd.Context(), &cleanupv1.SweepDocumentsRequest{DryRun: dryRun})
				if err != nil {
					return false, err
				}
				return printErasure(cmd.OutOrStdout(), output, dryRun, stream)
			})
		}),
	}
	output.AddFlag(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing, show what would be erased")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
