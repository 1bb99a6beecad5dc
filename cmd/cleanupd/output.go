package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// format is how an answer is printed: as a table for people, or as the API's JSON, or the same in YAML.
type format string

var formats = []string{"table", "json", "yaml"}

// flag adds --output to a command.
func (f *format) flag(cmd *cobra.Command) {
	*f = "table"
	cmd.PersistentFlags().VarP(f, "output", "o", "how the answer is printed: table, json (the API's) or yaml (the same)")
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

// print prints an answer, or the table of it: a row of cells each, the first of them the header.
func (f *format) print(w io.Writer, answer proto.Message, table [][]string) error {
	if *f == "table" {
		out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, cells := range table {
			fmt.Fprintln(out, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
		}
		return out.Flush()
	}
	text, err := protojson.MarshalOptions{Multiline: true, EmitDefaultValues: true}.Marshal(answer)
	if err != nil {
		return err
	}
	if *f == "yaml" {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(w, strings.TrimSpace(string(text)))
	return err
}
