package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

var guards = settings{"guard", (&cleanupv1.Guards{}).ProtoReflect().Descriptor().Fields(), parseGuard, guardValue}

func NewGuards() *cobra.Command {
	var (
		server rpc.Server
		output format.Output
	)
	get := &cobra.Command{
		Use:     "get",
		Short:   "Show the guards, and the tasks that they refuse",
		Example: "  cleanupd guards get -o yaml",
		Args:    flags.NoArguments,
		RunE: rpc.WithClient(&server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			resp, err := client.GetGuards(cmd.Context(), &cleanupv1.GetGuardsRequest{})
			if err != nil {
				return err
			}
			return printGuards(cmd, client, output, resp, resp)
		}),
	}
	return withSubcommands(&cobra.Command{
		Use:   "guards [get | set NAME=VALUE …]",
		Short: "Show and change which deletes are unusual and need approval, and show which are refused",
		Long: "Show and change which deletes are unusual and need approval. A task that would do such a delete is\n" +
			"refused before it changes anything, in every run, until a plan that accepts it has run (cleanupd\n" +
			"run --preview), or an option of the task or the guard is changed.",
		Example: "  cleanupd guards\n  cleanupd guards set maxSharePercent=70 maxIdle=90d\n  cleanupd guards set " +
			"maxGrowth=off",
	}, &server, &output, get, newSetGuards(&server, &output))
}

func newSetGuards(server *rpc.Server, output *format.Output) *cobra.Command {
	var (
		reason string
		yes    bool
	)
	cmd := &cobra.Command{
		Use:   "set NAME=VALUE …",
		Short: "Change guards; the others keep their values",
		Long: "Change guards; the others keep their values. A value is a number, a time such as 5m or 90d, off or 0, " +
			"or default.\nOn a terminal, ask for confirmation if a guard would refuse less than before.\nTasks that a " +
			"guard refused before it was changed are judged again in the next run.",
		Example: "  cleanupd guards set minRows=50000 cutoff=on\n  cleanupd guards set maxGrowth=off " +
			"maxSharePercent=default --reason 'archived in May'",
		Args:              atLeastOneSetting,
		ValidArgsFunction: completeGuards(server),
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) error {
			req := &cleanupv1.SetGuardsRequest{Guards: &cleanupv1.Guards{}}
			var err error
			if req.UpdateMask, err = guards.set(req.GetGuards(), args); err != nil {
				return err
			}
			current, err := client.GetGuards(cmd.Context(), &cleanupv1.GetGuardsRequest{})
			if err != nil {
				return err
			}
			looser := loosened(current, req)
			if len(looser) > 0 && !yes && terminal.IsInteractive() {
				if err := rpc.PrintTarget(cmd, server, client); err != nil {
					return err
				}
				rpc.PrintFact(cmd.ErrOrStderr(), "Guards", strings.Join(looser, ", "))
				if !terminal.Confirm(cmd, "Let more be deleted without approval?") {
					return errors.New("nothing was changed")
				}
			}
			req.Etag, req.Reason = current.GetEtag(), reason
			resp, err := client.SetGuards(cmd.Context(), req)
			if err != nil {
				return rpc.ExplainConflict(err)
			}
			return printGuards(cmd, client, *output, resp, &cleanupv1.GetGuardsResponse{
				Guards:   resp.GetGuards(),
				Defaults: current.GetDefaults(),
				Refusals: resp.GetRefusals(),
			})
		}),
	}
	f := cmd.Flags()
	f.StringVar(&reason, "reason", "", "the reason, for those who read the audit later")
	f.BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// loosened returns the guards that would refuse less after the change, each with its old and new value.
func loosened(current *cleanupv1.GetGuardsResponse, req *cleanupv1.SetGuardsRequest) (list []string) {
	for _, path := range req.GetUpdateMask().GetPaths() {
		f := guards.fields.ByName(protoreflect.Name(path))
		changed := req.GetGuards()
		if !changed.ProtoReflect().Has(f) {
			changed = current.GetDefaults()
		}
		if looseness(f, changed) > looseness(f, current.GetGuards()) {
			list = append(list,
				fmt.Sprintf("%s from %s to %s", f.JSONName(), guardValue(current.GetGuards().ProtoReflect(), f),
					guardValue(changed.ProtoReflect(), f)))
		}
	}
	return list
}

// looseness returns a number that is greater the less the guard refuses.
func looseness(f protoreflect.FieldDescriptor, g *cleanupv1.Guards) (n float64) {
	switch value := g.ProtoReflect().Get(f); f.Kind() {
	case protoreflect.BoolKind:
		if !value.Bool() {
			n = 1
		}
		return n
	case protoreflect.MessageKind:
		n = value.Message().Interface().(*durationpb.Duration).AsDuration().Seconds()
	case protoreflect.DoubleKind:
		n = value.Float()
	default:
		n = float64(value.Int())
	}
	if n == 0 && !isMinimum(f) { // the guard is off
		return math.Inf(1)
	}
	return n
}

// isMinimum reports whether the setting is a number below which guards never trip; 0 then does not switch a guard off.
func isMinimum(f protoreflect.FieldDescriptor) bool {
	return strings.HasPrefix(string(f.Name()), "min_")
}

// These say what the value of a guard must be, if it is neither off nor default.
var (
	errNotOn       = errors.New("on")
	errNotDuration = errors.New("a time such as 5m or 90d")
	errNotNumber   = errors.New("a number")
	errNotWhole    = errors.New("a whole number from 0 to 9,223,372,036,854,775,807")
)

func parseGuard(f protoreflect.FieldDescriptor, text string) (value protoreflect.Value, err error) {
	if text == "default" {
		return value, nil
	}
	if value, err = guardOf(f, text); err != nil {
		err = flags.Errorf("%s must be %w, off or default, not %q", f.JSONName(), err, text)
	}
	return value, err
}

// guardOf returns the expected kind of value as its error.
func guardOf(f protoreflect.FieldDescriptor, text string) (value protoreflect.Value, err error) {
	switch f.Kind() {
	case protoreflect.BoolKind:
		switch text {
		case "on", "true":
			return protoreflect.ValueOfBool(true), nil
		case "off", "false":
			return protoreflect.ValueOfBool(false), nil
		}
		return value, errNotOn
	case protoreflect.MessageKind:
		d, err := flags.ParseDuration(text)
		if err != nil && text != "off" {
			return value, errNotDuration
		}
		return protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect()), nil
	case protoreflect.DoubleKind:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil && text != "off" {
			return value, errNotNumber
		}
		return protoreflect.ValueOfFloat64(n), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && text != "off" {
		return value, errNotWhole
	}
	return protoreflect.ValueOfInt64(n), nil
}

// printGuards prints g as a table, or resp in other formats. The table leaves out what the server's database does not
// have.
func printGuards(
	cmd *cobra.Command, client cleanupd.Client, output format.Output, resp proto.Message, g *cleanupv1.GetGuardsResponse,
) error {
	about, err := client.GetServer(cmd.Context(), &cleanupv1.GetServerRequest{})
	if err != nil {
		return err
	}
	table := []terminal.Row{{"GUARD", "VALUE", "DEFAULT", "REFUSES"}}
	for i := range guards.fields.Len() {
		f := guards.fields.Get(i)
		if (slices.Contains(ofCampaign, f.Name()) && !about.GetCampaign()) ||
			(f.Name() == "min_process_instances" && !about.GetUserData()) {
			continue
		}
		table = append(table, terminal.Row{
			f.JSONName(),
			guardValue(g.GetGuards().ProtoReflect(), f),
			guardValue(g.GetDefaults().ProtoReflect(), f),
			guardMeanings[f.JSONName()],
		})
	}
	w := cmd.OutOrStdout()
	err = output.Print(w, resp, table)
	if err != nil || output != format.Table || len(g.GetRefusals()) == 0 {
		return err
	}
	table = []terminal.Row{{"REFUSED", "GUARD", "TABLE", "NUMBER", "LIMIT", "SINCE", "RUN"}}
	for _, l := range g.GetRefusals() {
		table = append(table,
			terminal.Row{
				l.GetTask(), format.EnumName(l.GetGuard().GetGuard()), l.GetGuard().GetTable(),
				trippedNumber(l.GetGuard()), humanize.Comma(l.GetGuard().GetLimit()), format.Time(l.GetTripTime()),
				l.GetRunId(),
			})
	}
	fmt.Fprintln(w)
	return terminal.ScreenOf(w).PrintTable(table)
}

// ofCampaign are the settings that only a Campaign database uses.
var ofCampaign = []protoreflect.Name{"max_tables", "max_drop_percent", "max_idle"}

// guardMeanings says what each setting makes guards refuse.
var guardMeanings = map[string]string{
	"minRows":             "share, cutoff and growth: only this many rows or more",
	"minProcessInstances": "share and cutoff of Forms purges: only this many process instances or more",
	"maxSharePercent":     "share: deleting a larger percentage of a table within a day",
	"cutoff":              "cutoff: deleting by a cutoff that moved faster than the time",
	"maxGrowth":           "growth: deleting this many times more than any run before",
	"maxTables":           "tables: dropping more work tables in a task",
	"maxDropPercent":      "bytes: dropping a larger percentage of the database in a task",
	"maxClockDifference":  "clock: runs, if the clocks of database and server differ more",
	"maxIdle":             "idle: runs, if the application has written nothing for longer",
	"first":               "first: scheduled runs, until a run by hand has succeeded",
}

// trippedNumber adds "or more" if the run stopped counting.
func trippedNumber(g *cleanupv1.TrippedGuard) string {
	number := humanize.Comma(g.GetNumber())
	if g.GetAtLeast() {
		number += " or more"
	}
	return number
}

func guardValue(g protoreflect.Message, f protoreflect.FieldDescriptor) string {
	value := g.Get(f)
	var off bool
	var text string
	switch f.Kind() {
	case protoreflect.BoolKind:
		off, text = !value.Bool(), "on"
	case protoreflect.MessageKind:
		d := value.Message().Interface().(*durationpb.Duration).AsDuration()
		off, text = d == 0, format.Period(d)
	case protoreflect.DoubleKind:
		off, text = value.Float() == 0, humanize.Ftoa(value.Float())
	default:
		off, text = value.Int() == 0 && !isMinimum(f), humanize.Comma(value.Int())
	}
	if off {
		return "off"
	}
	return text
}

func completeGuards(server *rpc.Server) cobra.CompletionFunc {
	return guards.complete(server, "=", func(ctx context.Context, client cleanupd.Client) (proto.Message, error) {
		resp, err := client.GetGuards(ctx, &cleanupv1.GetGuardsRequest{})
		return resp.GetGuards(), err
	})
}

// guardsFlag is given as GUARD,TABLE,NUMBER, where the name of the table may contain commas.
type guardsFlag []*cleanupv1.TrippedGuard

func (a *guardsFlag) String() string { return "" }

func (a *guardsFlag) Type() string { return "GUARD,TABLE,NUMBER" }

func (a *guardsFlag) Set(text string) error {
	name, rest, _ := strings.Cut(text, ",")
	// scripts pass the name from the JSON of a preview
	kind := cleanupv1.GuardKind_value["GUARD_KIND_"+strings.TrimPrefix(strings.ToUpper(name), "GUARD_KIND_")]
	if kind == 0 {
		return fmt.Errorf("%q is not a guard, such as share", name)
	}
	i := strings.LastIndex(rest, ",")
	if i < 0 {
		return fmt.Errorf("must be GUARD,TABLE,NUMBER, such as share,%s,250000", `"public"."orders"`)
	}
	number, err := strconv.ParseInt(rest[i+1:], 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a number", rest[i+1:])
	}
	*a = append(*a, &cleanupv1.TrippedGuard{
		Guard:  cleanupv1.GuardKind(kind),
		Table:  rest[:i],
		Number: number,
	})
	return nil
}

// acceptGuards asks the user to type the number of each guard that would refuse the run. It asks again after a wrong
// number, and stops after an empty line. It returns true if all numbers were typed.
func acceptGuards(cmd *cobra.Command, tripped []*cleanupv1.TrippedGuard) bool {
	for i, g := range tripped {
		fmt.Fprintf(cmd.ErrOrStderr(), "\n%d of %d: %s\n", i+1, len(tripped), watch.DescribeGuard(g))
		for typed := int64(-1); typed != g.GetNumber(); {
			fmt.Fprintf(cmd.ErrOrStderr(), "To accept it, type %s, or nothing to run nothing: ",
				humanize.Comma(g.GetNumber()))
			answer := terminal.ReadAnswer(cmd.Context(), cmd.InOrStdin())
			if answer == "" {
				return false
			}
			var err error
			if typed, err = strconv.ParseInt(strings.ReplaceAll(answer, ",", ""), 10, 64); err != nil {
				typed = -1
			}
			if typed != g.GetNumber() {
				fmt.Fprint(cmd.ErrOrStderr(), "That is another number. ")
			}
		}
	}
	return true
}
