package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// format is how an answer is printed: as a table for people, or as the API's JSON, or the same in YAML.
type format string

const asTable format = "table"

var formats = []string{string(asTable), "json", "yaml"}

// flag adds --output to a command.
func (f *format) flag(cmd *cobra.Command) {
	*f = asTable
	cmd.PersistentFlags().
		VarP(f, "output", "o", "how the answer is printed: table, json (the API's; of a stream a message a line) or "+
			"yaml (the same)")
	// it fails for an unknown flag alone
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// String implements pflag.Value.
func (f *format) String() string { return string(*f) }

// Set implements pflag.Value.
func (f *format) Set(name string) error {
	if !slices.Contains(formats, name) {
		return fmt.Errorf("must be %s", strings.Join(formats, ", "))
	}
	*f = format(name)
	return nil
}

// Type implements pflag.Value.
func (f *format) Type() string { return "format" }

// print prints an answer, or the table of it.
func (f *format) print(w io.Writer, answer proto.Message, table []row) error {
	if *f == asTable {
		return screenOf(w).printTable(table)
	}
	text, err := protojson.MarshalOptions{Multiline: true, EmitDefaultValues: true}.Marshal(answer)
	return errors.Join(err, f.write(w, text))
}

// message prints a message of a stream: JSON as a line, YAML as a document.
func (f *format) message(w io.Writer, m proto.Message) error {
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	return errors.Join(err, f.line(w, text))
}

// line prints one of several answers, which is given in JSON.
func (f *format) line(w io.Writer, text []byte) error {
	if *f == "yaml" {
		fmt.Fprintln(w, "---")
	}
	return f.write(w, text)
}

// write prints an answer that is given in JSON.
func (f *format) write(w io.Writer, text []byte) (err error) {
	if *f == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(w, strings.TrimSpace(string(text)))
	return err
}

// events prints the events of a run as the API has them, and notes elsewhere.
type events struct {
	format
	out, notes io.Writer
}

func (v *events) event(e *cleanupv1.RunEvent) error {
	return v.message(v.out, &cleanupv1.WatchRunResponse{Event: e})
}

func (v *events) note(text string) error {
	_, err := fmt.Fprintln(v.notes, text)
	return err
}

func (v *events) end() error { return nil }

// newPrinter returns a printer of a run's events in a format.
func newPrinter(output format, cmd *cobra.Command) viewer {
	if output == asTable {
		return newView(screenOf(cmd.OutOrStdout()))
	}
	return &events{output, cmd.OutOrStdout(), cmd.ErrOrStderr()}
}
