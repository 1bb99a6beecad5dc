package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/cli/watch"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

var optionFields = (&cleanupv1.Options{}).ProtoReflect().Descriptor().Fields()

func NewOptions() *cobra.Command {
	var (
		server rpc.Server
		output format.Output
		etag   string
		yes    bool
	)
	get := rpc.WithCleanup(&server, func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, _ []string) error {
		out, err := client.GetOptions(cmd.Context(), &cleanupv1.GetOptionsRequest{})
		if err != nil {
			return err
		}
		return printOptions(cmd, &output, out, out)
	})
	set := func(change func(args []string) (*cleanupv1.SetOptionsRequest, error)) func(*cobra.Command, []string) error {
		return rpc.WithCleanup(
			&server,
			func(cmd *cobra.Command, client cleanupv1.CleanupServiceClient, args []string) error {
				in, err := change(args)
				if err != nil {
					return err
				}
				in.Etag = etag
				if cmd.Name() == "set" && !yes && term.IsTerminal(int(os.Stdin.Fd())) {
					if err := confirmOptions(cmd, &server, client, in.GetOptions()); err != nil {
						return err
					}
				}
				out, err := client.SetOptions(cmd.Context(), in)
				if err != nil {
					return err
				}
				return printOptions(
					cmd,
					&output,
					out,
					&cleanupv1.GetOptionsResponse{
						Options:    out.GetOptions(),
						Defaults:   out.GetDefaults(),
						Customized: out.GetCustomized(),
						Invalid:    out.GetInvalid(),
					},
				)
			},
		)
	}
	cmd := &cobra.Command{
		Use:   "options [get | set NAME=VALUE … | reset NAME …]",
		Short: "Show and change the retention options, which are kept in XtkOption",
		Example: "  cleanupd options\n  cleanupd options set broadLogPurgeDelayDays=120\n  cleanupd options reset " +
			"broadLogPurgeDelayDays",
		Args: flags.OnlyCommands,
		RunE: get,
	}
	changing := []*cobra.Command{
		{
			Use:   "set NAME=VALUE …",
			Short: "Change options; those that are not named stay as they are",
			Long: "Change options; those that are not named stay as they are.\nOn a terminal it shows what a run " +
				"would do by the new options and by the old ones, and asks.",
			Example: "  cleanupd options set broadLogPurgeDelayDays=120 visitorPurgeDelayDays=14\n  cleanupd options " +
				"set storageOptimization=ANALYZE",
			RunE: set(setRequest),
		},
		{
			Use:     "reset NAME …",
			Short:   "Give options their defaults again, by deleting their rows",
			Example: "  cleanupd options reset broadLogPurgeDelayDays",
			RunE:    set(resetRequest),
		},
	}
	cmd.AddCommand(
		&cobra.Command{
			Use:     "get",
			Short:   "Show the options in force",
			Example: "  cleanupd options get -o yaml",
			Args:    flags.NoArguments,
			RunE:    get,
		},
	)
	changing[0].Flags().BoolVar(&yes, "yes", false, "do not ask")
	for _, c := range changing {
		c.Args = atLeastOneOption
		c.Flags().StringVar(&etag, "etag", "", "change nothing if the options have changed since they had this etag")
		cmd.AddCommand(c)
	}
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	return cmd
}

// confirmOptions shows what a run would do by new options, and by those that are stored, and asks.
func confirmOptions(
	cmd *cobra.Command,
	server *rpc.Server,
	client cleanupv1.CleanupServiceClient,
	o *cleanupv1.Options,
) error {
	stream, err := client.RunCleanup(cmd.Context(), &cleanupv1.RunCleanupRequest{DryRun: true, WhatIf: o})
	if err != nil {
		return err
	}
	if err := watch.NewRun(cmd.Context(), server, client, stream).
		Follow(watch.NewView(terminal.ScreenOf(cmd.ErrOrStderr()))); err != nil {
		return err
	}
	if !terminal.Confirm(cmd, "Set these options?") {
		return errors.New("nothing was changed")
	}
	return nil
}

// someOptions refuses to change nothing.
func atLeastOneOption(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return flags.Errorf("%s takes at least one option; see %s --help", cmd.CommandPath(), cmd.CommandPath())
	}
	return nil
}

// namedField is a field by its name in JSON or in the API's messages; what says of what it is one.
func fieldByName(fields protoreflect.FieldDescriptors, what, name string) (protoreflect.FieldDescriptor, error) {
	var known []string
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.JSONName() == name || string(f.Name()) == name {
			return f, nil
		}
		known = append(known, f.JSONName())
	}
	return nil, flags.Errorf("there is no %s %q; there are %s", what, name, strings.Join(known, ", "))
}

// changedOptions is the request that sets NAME=VALUE.
func setRequest(args []string) (*cleanupv1.SetOptionsRequest, error) {
	in := &cleanupv1.SetOptionsRequest{Options: &cleanupv1.Options{}, UpdateMask: &fieldmaskpb.FieldMask{}}
	values := map[string]any{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || value == "" {
			return nil, flags.Errorf("%q is not NAME=VALUE", arg)
		}
		f, err := fieldByName(optionFields, "option", name)
		if err != nil {
			return nil, err
		}
		values[f.JSONName()] = json.RawMessage(strconv.Quote(value))
		if f.Kind() == protoreflect.EnumKind {
			values[f.JSONName()] = "STORAGE_OPTIMIZATION_" + strings.TrimPrefix(
				strings.ToUpper(value),
				"STORAGE_OPTIMIZATION_",
			)
		}
		in.UpdateMask.Paths = append(in.UpdateMask.Paths, string(f.Name()))
	}
	text, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	if err := protojson.Unmarshal(text, in.GetOptions()); err != nil {
		return nil, flags.Errorf(
			"%s: a delay is a number of days, storageOptimization is VACUUM_ANALYZE, ANALYZE or NONE",
			strings.Join(args, " "),
		)
	}
	return in, nil
}

// resetOptions is the request that resets options by name.
func resetRequest(args []string) (*cleanupv1.SetOptionsRequest, error) {
	in := &cleanupv1.SetOptionsRequest{Options: &cleanupv1.Options{}, UpdateMask: &fieldmaskpb.FieldMask{}}
	for _, name := range args {
		f, err := fieldByName(optionFields, "option", name)
		if err != nil {
			return nil, err
		}
		in.UpdateMask.Paths = append(in.UpdateMask.Paths, string(f.Name()))
	}
	return in, nil
}

// printOptions prints the options of an answer, and tells of those that are stored, but not used.
func printOptions(
	cmd *cobra.Command,
	output *format.Output,
	answer proto.Message,
	o *cleanupv1.GetOptionsResponse,
) error {
	table := []terminal.Row{{"OPTION", "VALUE", "DEFAULT", "STORED"}}
	for i := range optionFields.Len() {
		f := optionFields.Get(i)
		stored := ""
		if slices.Contains(o.GetCustomized().GetPaths(), string(f.Name())) {
			stored = "yes"
		}
		table = append(
			table,
			terminal.Row{f.JSONName(), optionValue(o.GetOptions(), f), optionValue(o.GetDefaults(), f), stored},
		)
	}
	for _, invalid := range o.GetInvalid() {
		name := invalid.GetField()
		if f, err := fieldByName(optionFields, "option", name); err == nil {
			name = f.JSONName()
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", name, invalid.GetReason())
	}
	return output.Print(cmd.OutOrStdout(), answer, table)
}

// optionValue is a value for people; empty: there is none.
func optionValue(o *cleanupv1.Options, f protoreflect.FieldDescriptor) string {
	if !o.ProtoReflect().Has(f) {
		return ""
	}
	value := o.ProtoReflect().Get(f)
	switch {
	case f.Kind() == protoreflect.EnumKind:
		return strings.TrimPrefix(string(f.Enum().Values().ByNumber(value.Enum()).Name()), "STORAGE_OPTIMIZATION_")
	case f.Kind() == protoreflect.MessageKind:
		return value.Message().Interface().(*timestamppb.Timestamp).AsTime().Format("2006-01-02 15:04 UTC")
	}
	return fmt.Sprintf("%d days", value.Int())
}
