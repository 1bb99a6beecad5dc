// Package format prints a server's responses as a table for people, or as the API's JSON or YAML (--output). It also
// formats values such as durations and sizes. The commands of internal/cli use it; package terminal does the
// printing.
package format

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
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

// EnumName returns the name in lower case, without the prefix that all names of the enum share.
func EnumName(value protoreflect.Enum) string {
	names := value.Descriptor().Values()
	prefix := strings.TrimSuffix(string(names.ByNumber(0).Name()), "UNSPECIFIED")
	name := names.ByNumber(value.Number())
	if name == nil { // a value of a newer server
		return fmt.Sprint(value.Number())
	}
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(string(name.Name()), prefix), "_", " "))
}

// Size returns a size with its unit, such as 3.0 MiB.
func Size(n int64) string { return humanize.IBytes(uint64(n)) }

func Rows(n int64) string { return Count(n, "row", "rows") }

func Count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return humanize.Comma(n) + " " + many
}

func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// Period returns a duration such as 90 days or 1m30s, as settings are written.
func Period(d time.Duration) string {
	const day = 24 * time.Hour
	if d > 0 && d%day == 0 {
		return Count(int64(d/day), "day", "days")
	}
	return d.String()
}

// Elapsed returns "" if either time is unknown.
func Elapsed(start, end *timestamppb.Timestamp) string {
	if start == nil || end == nil {
		return ""
	}
	return Duration(end.AsTime().Sub(start.AsTime()))
}

// Time returns a time in UTC, such as 2026-02-28T12:00:00Z; "" if it is unknown.
func Time(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format(time.RFC3339)
}

// Date returns a date in UTC; "" if it is unknown.
func Date(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format(time.DateOnly)
}

// FieldName returns the name that is typed on the command line and used in JSON: maxIdle for the stored MaxIdle, and
// visitorPurgeDelayDays for visitor_purge_delay_days.
func FieldName(stored string) string {
	var name strings.Builder
	for i, part := range strings.Split(stored, "_") {
		for j, r := range part {
			switch {
			case i == 0 && j == 0:
				r = unicode.ToLower(r)
			case j == 0:
				r = unicode.ToUpper(r)
			}
			name.WriteRune(r)
		}
	}
	return name.String()
}

var plainWord = regexp.MustCompile(`^[\w./:@%+=-]+$`)

// ShellWord quotes a text for a shell, unless it needs none.
func ShellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
