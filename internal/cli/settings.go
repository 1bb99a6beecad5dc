package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/cleanupd/cleanupd"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
)

// settings are the fields of a message that commands show, and set as NAME=VALUE: the options, or the guards.
type settings struct {
	kind   string // what errors call a field
	fields protoreflect.FieldDescriptors
	// parse returns an invalid value for the default.
	parse func(f protoreflect.FieldDescriptor, text string) (protoreflect.Value, error)
	show  func(m protoreflect.Message, f protoreflect.FieldDescriptor) string
}

// field takes the name in JSON or in the API's messages.
func (s settings) field(name string) (protoreflect.FieldDescriptor, error) {
	var known []string
	for i := range s.fields.Len() {
		f := s.fields.Get(i)
		if f.JSONName() == name || string(f.Name()) == name {
			return f, nil
		}
		known = append(known, f.JSONName())
	}
	return nil, flags.Errorf("unknown %[1]s %[2]q%[3]s: see cleanupd %[1]ss", s.kind, name, flags.Similar(name, known))
}

// names returns the mask of fields that are given by their names.
func (s settings) names(args []string) (*fieldmaskpb.FieldMask, error) {
	mask := &fieldmaskpb.FieldMask{}
	for _, name := range args {
		f, err := s.field(name)
		if err != nil {
			return nil, err
		}
		mask.Paths = append(mask.Paths, string(f.Name()))
	}
	return mask, nil
}

// set sets the fields of the message from arguments NAME=VALUE, and returns their mask.
func (s settings) set(m proto.Message, args []string) (*fieldmaskpb.FieldMask, error) {
	mask := &fieldmaskpb.FieldMask{}
	for _, arg := range args {
		name, text, ok := strings.Cut(arg, "=")
		if !ok || text == "" {
			return nil, flags.Errorf("%q is not NAME=VALUE", arg)
		}
		f, err := s.field(name)
		if err != nil {
			return nil, err
		}
		value, err := s.parse(f, text)
		if err != nil {
			return nil, err
		}
		if m.ProtoReflect().Clear(f); value.IsValid() {
			m.ProtoReflect().Set(f, value)
		}
		mask.Paths = append(mask.Paths, string(f.Name()))
	}
	return mask, nil
}

// complete completes the names of fields that were not given yet, with a suffix.
func (s settings) complete(
	server *rpc.Server, suffix string, current func(ctx context.Context, client cleanupd.Client) (proto.Message, error),
) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if strings.Contains(typed, "=") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		given := map[string]bool{}
		for _, arg := range args {
			name, _, _ := strings.Cut(arg, "=")
			given[name] = true
		}
		names := func(ctx context.Context, client cleanupd.Client) (list []cobra.Completion, err error) {
			values, err := current(ctx, client)
			if err != nil {
				return nil, err
			}
			for i := range s.fields.Len() {
				f := s.fields.Get(i)
				text := s.show(values.ProtoReflect(), f)
				if text != "" && !setByRuns(f) && !given[f.JSONName()] && !given[string(f.Name())] {
					list = append(list, cobra.CompletionWithDesc(f.JSONName()+suffix, "now "+text))
				}
			}
			return list, nil
		}
		list, directive := rpc.Complete(server, names)(cmd, args, typed)
		if suffix != "" {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return list, directive
	}
}

func atLeastOneSetting(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return flags.Errorf("%s takes at least one option; see %s --help", cmd.CommandPath(), cmd.CommandPath())
	}
	return nil
}
