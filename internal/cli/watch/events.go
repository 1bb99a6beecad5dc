package watch

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// events prints the events of a run as the API has them, and notes elsewhere.
type events struct {
	format.Output
	out, errs io.Writer
}

func (v *events) Event(e *cleanupv1.RunEvent) error {
	return v.PrintMessage(v.out, &cleanupv1.WatchRunResponse{Event: e})
}

func (v *events) Note(text string) error {
	_, err := fmt.Fprintln(v.errs, text)
	return err
}

func (v *events) Clear() error { return nil }

// newPrinter returns a printer of a run's events in a format.
func NewPrinter(output format.Output, cmd *cobra.Command) Printer {
	if output == format.Table {
		return NewView(terminal.ScreenOf(cmd.OutOrStdout()))
	}
	return &events{output, cmd.OutOrStdout(), cmd.ErrOrStderr()}
}
