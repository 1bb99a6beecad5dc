package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

var options = settings{"option", (&cleanupv1.Options{}).ProtoReflect().Descriptor().Fields(), parseOption, optionValue}

func NewOptions() *cobra.Command {
	var (
		server rpc.Server
		output format.Output
	)
	get := &cobra.Command{
		Use:     "get",
		Short:   "Show the current options",
		Example: "  cleanupd options get -o yaml",
		Args:    flags.NoArguments,
		RunE: rpc.WithClient(&server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			resp, err := client.GetOptions(cmd.Context(), &cleanupv1.GetOptionsRequest{})
			if err != nil {
				return explainNoOptions(err)
			}
			return printOptions(cmd, output, resp)
		}),
	}
	return withSubcommands(&cobra.Command{
		Use:   "options [get | set NAME=VALUE … | reset NAME …]",
		Short: "Show and change the retention options of Adobe Campaign, which are stored in XtkOption",
		Example: "  cleanupd options\n  cleanupd options set broadLogPurgeDelayDays=120\n  cleanupd options reset " +
			"broadLogPurgeDelayDays",
	}, &server, &output, get, newSetOptions(&server, &output), newResetOptions(&server, &output))
}

// withSubcommands makes cmd without a subcommand do the same as show. The subcommands share the flags of server and
// output.
func withSubcommands(
	cmd *cobra.Command, server *rpc.Server, output *format.Output, show *cobra.Command, others ...*cobra.Command,
) *cobra.Command {
	cmd.Args, cmd.RunE = flags.OnlyCommands, show.RunE
	cmd.Flags().AddFlagSet(show.Flags())
	cmd.AddCommand(append(others, show)...)
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	return cmd
}

func newSetOptions(server *rpc.Server, output *format.Output) *cobra.Command {
	var (
		etag string
		yes  bool
	)
	cmd := &cobra.Command{
		Use:   "set NAME=VALUE …",
		Short: "Change options; the others keep their values",
		Long: "Change options; the others keep their values.\nOn a terminal, show what a run would do with the new " +
			"options and with the old ones, and ask for confirmation.",
		Example: "  cleanupd options set broadLogPurgeDelayDays=120 visitorPurgeDelayDays=14\n  cleanupd options " +
			"set storageOptimization=ANALYZE",
		Args:              atLeastOneSetting,
		ValidArgsFunction: completeOptions(server, "="),
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) error {
			req := &cleanupv1.SetOptionsRequest{Options: &cleanupv1.Options{}, Etag: etag}
			var err error
			if req.UpdateMask, err = options.set(req.GetOptions(), args); err != nil {
				return err
			}
			return setOptions(cmd, *output, client, req, func() error {
				if yes || !terminal.CanAsk() {
					return nil
				}
				return confirmOptions(cmd, server, client, req.GetOptions())
			})
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	addEtagFlag(cmd, &etag)
	return cmd
}

func newResetOptions(server *rpc.Server, output *format.Output) *cobra.Command {
	var etag string
	cmd := &cobra.Command{
		Use:               "reset NAME …",
		Short:             "Reset options to their defaults, by deleting their rows",
		Example:           "  cleanupd options reset broadLogPurgeDelayDays",
		Args:              atLeastOneSetting,
		ValidArgsFunction: completeOptions(server, ""),
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) error {
			mask, err := options.names(args)
			if err != nil {
				return err
			}
			req := &cleanupv1.SetOptionsRequest{Options: &cleanupv1.Options{}, UpdateMask: mask, Etag: etag}
			return setOptions(cmd, *output, client, req, func() error { return nil })
		}),
	}
	addEtagFlag(cmd, &etag)
	return cmd
}

func addEtagFlag(cmd *cobra.Command, etag *string) {
	cmd.Flags().StringVar(etag, "etag", "",
		"change nothing if the options have changed since they had this etag (default the one at the start)")
}

// setOptions asks for confirmation and changes the options. Without an etag, it fails if they change while confirm
// asks.
func setOptions(
	cmd *cobra.Command, output format.Output, client cleanupd.Client, req *cleanupv1.SetOptionsRequest,
	confirm func() error,
) error {
	explain := func(err error) error { return err }
	if req.GetEtag() == "" {
		current, err := client.GetOptions(cmd.Context(), &cleanupv1.GetOptionsRequest{})
		if err != nil {
			return explainNoOptions(err)
		}
		req.Etag, explain = current.GetEtag(), rpc.ExplainConflict
	}
	if err := confirm(); err != nil {
		return err
	}
	resp, err := client.SetOptions(cmd.Context(), req)
	if err != nil {
		return explain(err)
	}
	return printOptions(cmd, output, resp)
}

// explainNoOptions says where the retention rules of a database without Campaign's tables are, since it has no
// options.
func explainNoOptions(err error) error {
	if status.Code(err) != codes.FailedPrecondition {
		return err
	}
	return fmt.Errorf(
		"there are no retention options: %s. The rules of another database are its policies: cleanupd policies",
		status.Convert(err).Message())
}

// confirmOptions compares a run with the new options and a run with the stored ones.
func confirmOptions(cmd *cobra.Command, server *rpc.Server, client cleanupd.Client, whatIf *cleanupv1.Options) error {
	run, err := watch.Start(cmd.Context(), server, client, &cleanupv1.RunCleanupRequest{DryRun: true, WhatIf: whatIf})
	if err != nil {
		return err
	}
	view := watch.NewView(terminal.ScreenOf(cmd.ErrOrStderr()), server, false)
	view.WithErrors = true
	if err := run.Follow(view); err != nil {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr())
	if err := rpc.PrintTarget(cmd, server, client); err != nil {
		return err
	}
	if !terminal.Confirm(cmd, "Set these options?") {
		return errors.New("nothing was changed")
	}
	return nil
}

func parseOption(f protoreflect.FieldDescriptor, text string) (value protoreflect.Value, err error) {
	switch f.Kind() {
	case protoreflect.EnumKind:
		name := storagePrefix + strings.TrimPrefix(strings.ToUpper(text), storagePrefix)
		known := f.Enum().Values().ByName(protoreflect.Name(name))
		if known == nil || known.Number() == 0 {
			return value, flags.Errorf("%s must be VACUUM_ANALYZE, ANALYZE or NONE, not %q", f.JSONName(), text)
		}
		return protoreflect.ValueOfEnum(known.Number()), nil
	case protoreflect.Int32Kind:
		days, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return value, flags.Errorf("%s must be a number of days from 1 to %s, not %q", f.JSONName(),
				humanize.Comma(campaign.MaxDays), text)
		}
		return protoreflect.ValueOfInt32(int32(days)), nil
	}
	return value, flags.Errorf("%s is read-only; runs set it", f.JSONName())
}

type optionsResponse interface {
	proto.Message
	GetOptions() *cleanupv1.Options
	GetDefaults() *cleanupv1.Options
	GetCustomized() *fieldmaskpb.FieldMask
	GetInvalid() []*cleanupv1.InvalidOption
}

func printOptions(cmd *cobra.Command, output format.Output, o optionsResponse) error {
	table := []terminal.Row{{"OPTION", "VALUE", "DEFAULT", "STORED"}}
	for i := range options.fields.Len() {
		f := options.fields.Get(i)
		stored := ""
		if slices.Contains(o.GetCustomized().GetPaths(), string(f.Name())) {
			stored = "yes"
		}
		table = append(table,
			terminal.Row{
				f.JSONName(), optionValue(o.GetOptions().ProtoReflect(), f),
				optionValue(o.GetDefaults().ProtoReflect(), f), stored,
			})
	}
	for _, invalid := range o.GetInvalid() {
		name := invalid.GetField()
		if f, err := options.field(name); err == nil {
			name = f.JSONName()
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", name, invalid.GetReason())
	}
	return output.Print(cmd.OutOrStdout(), o, table)
}

// storagePrefix begins the names of the values of storageOptimization.
const storagePrefix = "STORAGE_OPTIMIZATION_"

// optionValue returns "" if the option has no value.
func optionValue(o protoreflect.Message, f protoreflect.FieldDescriptor) string {
	if !o.Has(f) {
		return ""
	}
	value := o.Get(f)
	switch f.Kind() {
	case protoreflect.EnumKind:
		return strings.TrimPrefix(string(f.Enum().Values().ByNumber(value.Enum()).Name()), storagePrefix)
	case protoreflect.MessageKind:
		return value.Message().Interface().(*timestamppb.Timestamp).AsTime().Format("2006-01-02 15:04 UTC")
	}
	return fmt.Sprintf("%d days", value.Int())
}

// setByRuns reports whether the setting is a time, which only runs set.
func setByRuns(f protoreflect.FieldDescriptor) bool {
	return f.Message() != nil && f.Message().FullName() == "google.protobuf.Timestamp"
}

func completeOptions(server *rpc.Server, suffix string) cobra.CompletionFunc {
	return options.complete(server, suffix, func(ctx context.Context, client cleanupd.Client) (proto.Message, error) {
		resp, err := client.GetOptions(ctx, &cleanupv1.GetOptionsRequest{})
		return resp.GetOptions(), err
	})
}
