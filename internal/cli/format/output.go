package format

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

	"github.com/cleanupd/cleanupd/internal/terminal"
)

// format is how an answer is printed: as a table for people, or as the API's JSON, or the same in YAML.
type Output string

const Table Output = "table"

var formats = []string{string(Table), "json", "yaml"}

// flag adds --output to a command.
func (f *Output) AddFlag(cmd *cobra.Command) {
	*f = Table
	cmd.PersistentFlags().
		VarP(f, "output", "o", "how the answer is printed: table, json (the API's; of a stream a message a line) or "+
			"yaml (the same)")
	// it fails for an unknown flag alone
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// String implements pflag.Value.
func (f *Output) String() string { return string(*f) }

// Set implements pflag.Value.
func (f *Output) Set(name string) error {
	if !slices.Contains(formats, name) {
		return fmt.Errorf("must be %s", strings.Join(formats, ", "))
	}
	*f = Output(name)
	return nil
}

// Type implements pflag.Value.
func (f *Output) Type() string { return "format" }

// print prints an answer, or the table of it.
func (f *Output) Print(w io.Writer, answer proto.Message, table []terminal.Row) error {
	if *f == Table {
		return terminal.ScreenOf(w).PrintTable(table)
	}
	text, err := protojson.MarshalOptions{Multiline: true, EmitDefaultValues: true}.Marshal(answer)
	return errors.Join(err, f.write(w, text))
}

// message prints a message of a stream: JSON as a line, YAML as a document.
func (f *Output) PrintMessage(w io.Writer, m proto.Message) error {
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	return errors.Join(err, f.PrintLine(w, text))
}

// line prints one of several answers, which is given in JSON.
func (f *Output) PrintLine(w io.Writer, text []byte) error {
	if *f == "yaml" {
		fmt.Fprintln(w, "---")
	}
	return f.write(w, text)
}

// write prints an answer that is given in JSON.
func (f *Output) write(w io.Writer, text []byte) (err error) {
	if *f == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(w, strings.TrimSpace(string(text)))
	return err
}
