package watch

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// NewPrinter returns the printer of a run's events for an output format.
func NewPrinter(output format.Output, cmd *cobra.Command) Printer {
	if output == format.Table {
		return NewView(terminal.ScreenOf(cmd.OutOrStdout()))
	}
	return &eventPrinter{output, cmd.OutOrStdout(), cmd.ErrOrStderr()}
}

// eventPrinter prints the events of a run as the API's messages.
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
