package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"google.golang.org/protobuf/proto"

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
		Short: "Erase what is found for a user id, or process instances and orphan tasks by their ids",
		Long: "Show what would be erased, ask, and erase it: process instances and orphan tasks, with the documents " +
			"that nothing\n" +
			"else refers to. What holds the user id only as part of something longer must be given by its own id " +
			"(--process-instance).\n" +
			"Interrupting this program does not stop an erasure that has begun. The exit status is 1 if anything was " +
			"kept.",
		Example: "  cleanupd userdata erase bob.smith@example.com --dry-run\n  cleanupd userdata erase " +
			"bob.smith@example.com --variable Claims/apply --yes\n  cleanupd userdata erase --process-instance 30 " +
			"--orphan-task 86",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return flags.Errorf(
					"%s takes one user id, not %d; see %s --help",
					cmd.CommandPath(),
					len(args),
					cmd.CommandPath(),
				)
			}
			return nil
		},
		RunE: rpc.WithUserData(
			server,
			func(cmd *cobra.Command, client cleanupv1.UserDataServiceClient, args []string) (err error) {
				if len(args) > 0 {
					req.UserId = args[0]
				}
				if req.Variables, err = parseVariables(variables); err != nil {
					return err
				}
				if byID := len(req.GetProcessInstanceIds())+len(req.GetTaskIds()) > 0; byID == (req.GetUserId() != "") {
					return flags.Errorf(
						"give either a user id, or ids of process instances and orphan tasks (--process-instance, " +
							"--orphan-task)",
					)
				}
				return eraseAfterPreview(cmd, yes, req.DryRun, "Erase this?", func(dryRun bool) (bool, error) {
					req.DryRun = dryRun
					return erase(cmd.Context(), cmd.OutOrStdout(), output, client, &req)
				})
			},
		),
	}
	output.AddFlag(cmd)
	f := cmd.Flags()
	variablesFlag(f, &variables)
	f.StringArrayVar(&req.ProcessInstanceIds, "process-instance", nil, "the id of a process instance; may be repeated")
	f.StringArrayVar(&req.TaskIds, "orphan-task", nil, "the id of an orphan task; may be repeated")
	f.StringArrayVar(&req.PrincipalIds, "principal", nil, "which principal of the user id is meant; may be repeated")
	f.BoolVar(&req.DryRun, "dry-run", false, "change nothing, show what would be erased")
	f.BoolVar(&yes, "yes", false, "do not ask")
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		// their names before; but $CLEANUPD_TASK is a task of the pipeline, and $CLEANUPD_INSTANCE the service
		switch name {
		case "task":
			name = "orphan-task"
		case "instance":
			name = "process-instance"
		}
		return pflag.NormalizedName(name)
	})
	return cmd
}

// preview shows what would be erased, asks unless the answer is known to be yes, and erases it. erase reports whether
// there was anything.
func eraseAfterPreview(
	cmd *cobra.Command,
	yes, dryRun bool,
	question string,
	erase func(dryRun bool) (some bool, err error),
) error {
	if !yes && !dryRun && !term.IsTerminal(int(os.Stdin.Fd())) {
		return flags.Errorf(
			"there is nobody to ask whether to erase: give --yes, or --dry-run to be told what would be erased",
		)
	}
	if !yes || dryRun {
		some, err := erase(true)
		if err != nil || dryRun || !some {
			return err
		}
		if !terminal.Confirm(cmd, question+" It can not be undone.") {
			return errors.New("nothing was erased")
		}
	}
	_, err := erase(false)
	return err
}

// erase requests an erasure, or a dry run, prints its events, and reports whether there was something to erase.
func erase(
	ctx context.Context,
	w io.Writer,
	output format.Output,
	client cleanupv1.UserDataServiceClient,
	req *cleanupv1.EraseUserDataRequest,
) (some bool, err error) {
	stream, err := client.EraseUserData(ctx, req)
	return printErasure(w, output, req.GetDryRun(), stream, err)
}

// eraseMessage is a message of an erasure's stream, or of a sweep's.
type eraseMessage interface {
	proto.Message
	GetEvent() *cleanupv1.EraseEvent
}

// watchErasure prints the events of a stream that was opened, unless that failed, and reports whether there was
// something to erase.
func printErasure[M eraseMessage](
	w io.Writer,
	output format.Output,
	dryRun bool,
	stream interface{ Recv() (M, error) },
	err error,
) (some bool, _ error) {
	v := &eraseView{w: w, done: "erased"}
	if dryRun {
		v.done = "would be erased"
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
	return v.some, err
}

// eraseView prints an erasure, and counts what it has reported so far.
type eraseView struct {
	w                io.Writer
	done             string // "erased", or "would be erased"
	instances, tasks int
	documents        int // in the database, by a sweep
	some             bool
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
		_, err = fmt.Fprintf(
			w,
			"process instance %s %s%s%s\n",
			e.GetInstanceErased().GetId(),
			first,
			done,
			rowsText(e.GetInstanceErased().GetRows()),
		)
	case e.GetTaskErased() != nil:
		v.tasks++
		_, err = fmt.Fprintf(
			w,
			"orphan task %s %s%s\n",
			e.GetTaskErased().GetId(),
			done,
			rowsText(e.GetTaskErased().GetRows()),
		)
	case e.GetDocumentErased() != nil:
		v.documents++
		_, err = fmt.Fprintf(
			w,
			"document %s of %s %s%s\n",
			e.GetDocumentErased().GetDocumentId(),
			strings.Join(e.GetDocumentErased().GetSessionIds(), ", "),
			done,
			rowsText(e.GetDocumentErased().GetRows()),
		)
	case e.GetFileDeleted() != nil:
		_, err = fmt.Fprintf(w, "file %s %s\n", e.GetFileDeleted().GetPath(), done)
	case e.GetLog() != nil:
		_, err = fmt.Fprintf(w, "%s: %s\n", format.EnumName(e.GetLog().GetLevel()), e.GetLog().GetMessage())
	case e.GetReceipt() != nil:
		r := e.GetReceipt()
		// which the next sweep depends on
		v.some = v.instances+v.tasks+v.documents+len(r.GetFiles()) > 0 || (r.GetSweep() && len(r.GetProblems()) > 0)
		what := fmt.Sprintf("%d process instances, %d orphan tasks", v.instances, v.tasks)
		if r.GetSweep() {
			what = fmt.Sprintf("%d documents in the database", v.documents)
		}
		_, err = fmt.Fprintf(w, "\n%s, %d files %s%s\n", what, len(r.GetFiles()), done, rowsText(r.GetRows()))
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
		parts = append(parts, fmt.Sprintf("%s of %s", humanize.Comma(r.GetRows()), r.GetTable()))
	}
	return " (rows: " + strings.Join(parts, ", ") + ")"
}
