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

// Output is the value of the flag --output.
type Output string

const Table Output = "table"

var outputs = []string{string(Table), "json", "yaml"}

func (o *Output) AddFlag(cmd *cobra.Command) {
	*o = Table
	cmd.PersistentFlags().VarP(o, "output", "o",
		"how the answer is printed: table, json (the API's; of a stream one message per line) or yaml (the same)")
	// it fails only for an unknown flag
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
}

func (o *Output) String() string { return string(*o) }

func (o *Output) Set(name string) error {
	if !slices.Contains(outputs, name) {
		return fmt.Errorf("must be %s", strings.Join(outputs, ", "))
	}
	*o = Output(name)
	return nil
}

func (o *Output) Type() string { return "format" }

func (o Output) Print(w io.Writer, answer proto.Message, table []terminal.Row) error {
	if o == Table {
		return terminal.ScreenOf(w).PrintTable(table)
	}
	text, err := protojson.MarshalOptions{Multiline: true, EmitDefaultValues: true}.Marshal(answer)
	return errors.Join(err, o.write(w, text))
}

// PrintMessage prints one message of a stream: a line of JSON, or a document of YAML.
func (o Output) PrintMessage(w io.Writer, m proto.Message) error {
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	return errors.Join(err, o.PrintLine(w, text))
}

func (o Output) PrintLine(w io.Writer, json []byte) error {
	if o == "yaml" {
		fmt.Fprintln(w, "---")
	}
	return o.write(w, json)
}

func (o Output) write(w io.Writer, text []byte) (err error) {
	if o == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(w, strings.TrimSpace(string(text)))
	return err
}
