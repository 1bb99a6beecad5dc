package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

var guardFields = (&cleanupv1.Guards{}).ProtoReflect().Descriptor().Fields()

func NewGuards() *cobra.Command {
	var (
		server rpc.Server
		output format.Output
	)
	get := rpc.WithCleanup(&server, func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, _ []string) error {
		out, err := client.GetGuards(cmd.Context(), &cleanupv1.GetGuardsRequest{})
		if err != nil {
			return err
		}
		return printGuards(cmd, &output, out, out)
	})
	cmd := &cobra.Command{
		Use:   "guards [get | set NAME=VALUE …]",
		Short: "Show and change what is unusual and needs somebody's word, and show what is refused",
		Long: "Show and change what is unusual and needs somebody's word. A task that would do it is refused before " +
			"it has changed anything,\n" +
			"at every run, until a plan that accepts it has run (cleanupd run --preview), or an option of the task " +
			"or the guard is changed.",
		Example: "  cleanupd guards\n  cleanupd guards set maxSharePercent=70 maxIdle=90d\n  cleanupd guards set " +
			"maxGrowth=off",
		Args: flags.OnlyCommands,
		RunE: get,
	}
	cmd.AddCommand(
		&cobra.Command{
			Use:     "get",
			Short:   "Show the guards, and what they refuse",
			Example: "  cleanupd guards get -o yaml",
			Args:    flags.NoArguments,
			RunE:    get,
		},
		&cobra.Command{
			Use:   "set NAME=VALUE …",
			Short: "Change guards; those that are not named stay as they are",
			Long: "Change guards; those that are not named stay as they are. A value is a number, a time such as 5m " +
				"or 90d, off, or default.\nWhat a guard refused before it was changed is judged again at the next run.",
			Example: "  cleanupd guards set minRows=50000 cutoff=on\n  cleanupd guards set maxIdle=off " +
				"maxDropPercent=default",
			Args: atLeastOneOption,
			RunE: rpc.WithCleanup(
				&server,
				func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, args []string) error {
					change, cleared, err := parseGuardChanges(args)
					if err != nil {
						return err
					}
					now, err := client.GetGuards(cmd.Context(), &cleanupv1.GetGuardsRequest{})
					if err != nil {
						return err
					}
					settings := now.GetGuards()
					proto.Merge(settings, change)
					for _, f := range cleared {
						settings.ProtoReflect().Clear(f)
					}
					out, err := client.SetGuards(cmd.Context(), &cleanupv1.SetGuardsRequest{Guards: settings})
					if err != nil {
						return err
					}
					return printGuards(
						cmd,
						&output,
						out,
						&cleanupv1.GetGuardsResponse{
							Guards:   out.GetGuards(),
							Defaults: now.GetDefaults(),
							Latched:  out.GetLatched(),
						},
					)
				},
			),
		},
	)
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	return cmd
}

// changedGuards are the settings that NAME=VALUE sets, and those that become what they are by default.
func parseGuardChanges(args []string) (change *cleanupv1.Guards, cleared []protoreflect.FieldDescriptor, err error) {
	values := map[string]json.RawMessage{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || value == "" {
			return nil, nil, flags.Errorf("%q is not NAME=VALUE", arg)
		}
		f, err := fieldByName(guardFields, "guard", name)
		if err != nil {
			return nil, nil, err
		}
		if value == "default" {
			cleared = append(cleared, f)
			continue
		}
		text, err := guardJSON(f, value)
		if err != nil {
			return nil, nil, flags.Errorf("%s: %q is neither %s, off nor default", name, value, err.Error())
		}
		values[f.JSONName()] = json.RawMessage(text)
	}
	text, err := json.Marshal(values)
	if err != nil {
		return nil, nil, err
	}
	change = &cleanupv1.Guards{}
	if err := protojson.Unmarshal(text, change); err != nil {
		return nil, nil, flags.Errorf("%s: a whole number is too great, or has a fraction", strings.Join(args, " "))
	}
	return change, cleared, nil
}

// guardJSON is a setting in JSON; its error says what it must be.
func guardJSON(f protoreflect.FieldDescriptor, value string) (string, error) {
	switch f.Kind() {
	case protoreflect.BoolKind:
		if on, known := map[string]string{
			"on":    "true",
			"true":  "true",
			"off":   "false",
			"false": "false",
		}[value]; known {
			return on, nil
		}
		return "", fmt.Errorf("on")
	case protoreflect.MessageKind:
		d, err := time.ParseDuration(value)
		if days, isDays := strings.CutSuffix(value, "d"); isDays {
			var n float64
			n, err = strconv.ParseFloat(days, 64)
			d = time.Duration(n * 24 * float64(time.Hour))
		}
		if value == "off" {
			d, err = 0, nil
		}
		if err != nil {
			return "", fmt.Errorf("a time such as 5m or 90d")
		}
		return strconv.Quote(strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"), nil
	}
	if value == "off" {
		return "0", nil
	}
	if _, err := strconv.ParseFloat(value, 64); err != nil {
		return "", fmt.Errorf("a number")
	}
	return value, nil
}

// printGuards prints the settings of an answer, and what is refused.
func printGuards(
	cmd *cobra.Command,
	output *format.Output,
	answer proto.Message,
	g *cleanupv1.GetGuardsResponse,
) error {
	table := []terminal.Row{{"GUARD", "VALUE", "DEFAULT"}}
	for i := range guardFields.Len() {
		f := guardFields.Get(i)
		table = append(table, terminal.Row{f.JSONName(), guardValue(g.GetGuards(), f), guardValue(g.GetDefaults(), f)})
	}
	if err := output.Print(
		cmd.OutOrStdout(),
		answer,
		table,
	); err != nil || *output != format.Table ||
		len(g.GetLatched()) == 0 {
		return err
	}
	table = []terminal.Row{{"REFUSED", "GUARD", "TABLE", "WOULD", "MAY", "SINCE", "RUN"}}
	for _, l := range g.GetLatched() {
		table = append(
			table,
			terminal.Row{
				l.GetTask(),
				l.GetGuard().GetGuard(),
				l.GetGuard().GetTable(),
				humanize.Comma(l.GetGuard().GetNumber()),
				humanize.Comma(l.GetGuard().GetMost()),
				l.GetTripTime().AsTime().Format(time.RFC3339),
				l.GetRunId(),
			},
		)
	}
	fmt.Fprintln(cmd.OutOrStdout())
	return terminal.ScreenOf(cmd.OutOrStdout()).PrintTable(table)
}

// guardValue is a setting for people.
func guardValue(g *cleanupv1.Guards, f protoreflect.FieldDescriptor) string {
	value := g.ProtoReflect().Get(f)
	var off bool
	var text string
	switch f.Kind() {
	case protoreflect.BoolKind:
		off, text = !value.Bool(), "on"
	case protoreflect.MessageKind:
		d := value.Message().Interface().(*durationpb.Duration).AsDuration()
		off, text = d == 0, d.String()
		if d%(24*time.Hour) == 0 {
			text = fmt.Sprintf("%d days", d/(24*time.Hour))
		}
	case protoreflect.DoubleKind:
		off, text = value.Float() == 0, humanize.Ftoa(value.Float())
	default:
		off, text = value.Int() == 0 && !strings.HasPrefix(string(f.Name()), "min_"), humanize.Comma(value.Int())
	}
	if off {
		return "off"
	}
	return text
}

// acceptances are guards that a run may pass, as a flag: GUARD,TABLE,NUMBER. A table's name may have commas.
type guardsFlag []*cleanupv1.TrippedGuard

// String implements pflag.Value.
func (a *guardsFlag) String() string { return "" }

// Type implements pflag.Value.
func (a *guardsFlag) Type() string { return "GUARD,TABLE,NUMBER" }

// Set implements pflag.Value.
func (a *guardsFlag) Set(text string) error {
	guard, rest, _ := strings.Cut(text, ",")
	i := strings.LastIndex(rest, ",")
	if i < 0 {
		return fmt.Errorf("must be GUARD,TABLE,NUMBER, such as share,%s,250000", `"public"."nmsbroadlogrcp"`)
	}
	number, err := strconv.ParseInt(rest[i+1:], 10, 64)
	if err != nil {
		return fmt.Errorf("%q is no number", rest[i+1:])
	}
	*a = append(*a, &cleanupv1.TrippedGuard{Guard: guard, Table: rest[:i], Number: number})
	return nil
}

// acceptGuards asks for the number of each guard that would trip to be typed; ok is false if it was not.
func acceptGuards(cmd *cobra.Command, trips []*cleanupv1.TrippedGuard) (ok bool) {
	for _, t := range trips {
		fmt.Fprintf(cmd.ErrOrStderr(), "\n%s\nTo accept it, type the number: ", watch.DescribeGuard(t))
		if terminal.ReadAnswer(cmd.Context(), cmd.InOrStdin()) != strconv.FormatInt(t.GetNumber(), 10) {
			return false
		}
	}
	return true
}
