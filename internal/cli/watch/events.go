package watch

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// NewPrinter returns a printer for the output format. With all, it prints tables in full length.
func NewPrinter(output format.Output, cmd *cobra.Command, server *rpc.Server, all bool) Printer {
	if output == format.Table {
		return NewView(terminal.ScreenOf(cmd.OutOrStdout()), server, all)
	}
	return &eventPrinter{output, cmd.OutOrStdout(), cmd.ErrOrStderr()}
}

func AddAllFlag(f *pflag.FlagSet, all *bool) {
	f.BoolVar(all, "all", false, "show all tables, not only the largest changes; -o json always has all")
}

// eventPrinter prints the API's messages.
type eventPrinter struct {
	output      format.Output
	out, errOut io.Writer
}

func (p *eventPrinter) Event(e *cleanupv1.RunEvent) error {
	return p.output.PrintMessage(p.out, &cleanupv1.WatchRunResponse{Event: e})
}

func (p *eventPrinter) Note(text string) error {
	_, err := fmt.Fprintln(p.errOut, text)
	return err
}

func (p *eventPrinter) Clear() error { return nil }
