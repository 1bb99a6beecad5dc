// Package policies has the command policies: it shows and changes the retention rules for tables that the tasks of
// Campaign do not know, and keeps them in files. Package main offers the command, and the demo runs it.
package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/migrate"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

func NewCommand() *cobra.Command {
	var (
		server rpc.Server
		output format.Output
	)
	list := newList(&server, &output)
	cmd := &cobra.Command{
		Use:   "policies [list | get | set | delete | export | apply | grants]",
		Short: "Show and change policies, the retention rules for your own tables",
		Long: "Show and change policies: retention rules for any tables. Each is\n" +
			"a task of runs, " + policy.Prefix + "NAME. Its first run needs a preview: cleanupd run --preview.\n" +
			"export and apply keep policies in files, such as in git.",
		Example: "  cleanupd policies\n  cleanupd policies apply policies.yaml\n  cleanupd policies export " +
			">policies.yaml",
		Args: flags.OnlyCommands,
		RunE: list.RunE,
	}
	cmd.AddCommand(list, newGet(&server, &output), newSet(&server, &output), newDelete(&server), newExport(&server),
		newApply(&server, &output), newGrants(&server, &output))
	server.AddFlags(cmd)
	output.AddFlag(cmd)
	return cmd
}

func newList(server *rpc.Server, output *format.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the policies in the order of their names",
		Long: "List the policies in the order of their names. RAN says whether a run has followed a saved plan with\n" +
			"the rule as it is: before that, other runs are refused by the guard policy.",
		Example: "  cleanupd policies list -o json | jq -r '.policies[].name'",
		Args:    flags.NoArguments,
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			resp, err := listPolicies(cmd.Context(), client)
			if err != nil {
				return err
			}
			return output.Print(cmd.OutOrStdout(), resp, table(resp.GetPolicies()...))
		}),
	}
}

func newGet(server *rpc.Server, output *format.Output) *cobra.Command {
	return &cobra.Command{
		Use:               "get NAME",
		Short:             "Show a policy, with warnings",
		Example:           "  cleanupd policies get old-orders",
		Args:              flags.OneArgument("the name of a policy, as in cleanupd policies"),
		ValidArgsFunction: rpc.FirstArgument(rpc.Complete(server, known)),
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) error {
			resp, err := client.GetPolicy(cmd.Context(), &cleanupv1.GetPolicyRequest{Name: args[0]})
			if err != nil {
				return explainMissing(cmd, client, args[0], err)
			}
			printWarnings(cmd, resp.GetPolicy())
			return output.Print(cmd.OutOrStdout(), resp, facts(resp.GetPolicy()))
		}),
	}
}

func newSet(server *rpc.Server, output *format.Output) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "set --file FILE",
		Short: "Create or replace the policy of a file, without a question",
		Long: "Create or replace the policy of a file in YAML or JSON, without a question. The fields are those of\n" +
			"the API; cleanupd policies export prints examples.",
		Example: "  cleanupd policies set -f old-orders.yaml",
		Args:    flags.NoArguments,
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			if file == "" {
				return flags.Errorf("--file is required: the file with the policy")
			}
			found, err := readFile(cmd, file)
			if err != nil {
				return err
			}
			if len(found) != 1 {
				return flags.Errorf("%s has %d policies, and set takes one: see cleanupd policies apply", file,
					len(found))
			}
			if err := checkFirst(cmd.Context(), server, file, found); err != nil {
				return err
			}
			p := found[0].policy
			if p.Etag, err = etagOf(cmd, client, p.GetName()); err != nil {
				return err
			}
			resp, err := client.SetPolicy(cmd.Context(), &cleanupv1.SetPolicyRequest{Policy: p})
			if lacks := rules.ParseMissingRights(status.Convert(err).Message()); lacks != nil {
				return &rightsError{lacks, grantsCommand(server, file)}
			}
			if err != nil {
				return found[0].explain(rpc.ExplainConflict(err))
			}
			printWarnings(cmd, resp.GetPolicy())
			return output.Print(cmd.OutOrStdout(), resp, table(resp.GetPolicy()))
		}),
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the file with the policy; - for the standard input (required)")
	rpc.CompleteFlag(cmd, "file", flags.CompleteFiles)
	return cmd
}

func newDelete(server *rpc.Server) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:               "delete NAME",
		Short:             "Delete a policy; rows that it has deleted or changed are not restored",
		Example:           "  cleanupd policies delete old-orders --yes",
		Args:              flags.OneArgument("the name of a policy, as in cleanupd policies"),
		ValidArgsFunction: rpc.FirstArgument(rpc.Complete(server, known)),
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) error {
			etag, err := etagOf(cmd, client, args[0])
			if err != nil {
				return err
			}
			if etag != "" && !yes {
				if !terminal.CanAsk() {
					return flags.Errorf("deleting needs confirmation, and there is no terminal to ask on: give --yes")
				}
				if err := rpc.PrintTarget(cmd, server, client); err != nil {
					return err
				}
				if !terminal.Confirm(cmd, "Delete the policy "+terminal.Printable(args[0])+"?") {
					return errors.New("nothing was changed")
				}
			}
			req := &cleanupv1.DeletePolicyRequest{Name: args[0], Etag: etag}
			if _, err := client.DeletePolicy(cmd.Context(), req); err != nil {
				return explainMissing(cmd, client, args[0], rpc.ExplainConflict(err))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "The policy %s is deleted.\n", args[0])
			return nil
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// etagOf returns "" if the policy does not exist.
func etagOf(cmd *cobra.Command, client cleanupd.Client, name string) (string, error) {
	resp, err := client.GetPolicy(cmd.Context(), &cleanupv1.GetPolicyRequest{Name: name})
	if status.Code(err) == codes.NotFound || errors.Is(err, migrate.ErrNoSchema) {
		err = nil
	}
	return resp.GetPolicy().GetEtag(), err
}

// explainMissing adds policies with a similar name to the error of a policy that does not exist.
func explainMissing(cmd *cobra.Command, client cleanupd.Client, name string, err error) error {
	if status.Code(err) != codes.NotFound {
		return err
	}
	resp, listErr := listPolicies(cmd.Context(), client, rpc.Raw())
	if listErr != nil {
		return err
	}
	return status.Errorf(codes.NotFound, "there is no policy %q%s", name, similar(name, resp.GetPolicies()))
}

func similar(name string, policies []*cleanupv1.Policy) string {
	var names []string
	for _, p := range policies {
		names = append(names, p.GetName())
	}
	return flags.Similar(name, names)
}

// printWarnings prints to stderr, whatever the output format.
func printWarnings(cmd *cobra.Command, p *cleanupv1.Policy) {
	for _, w := range p.GetWarnings() {
		fmt.Fprint(cmd.ErrOrStderr(), warning(p, w))
	}
}

func warning(p *cleanupv1.Policy, w *cleanupv1.Message) string {
	return fmt.Sprintf("Warning: %s: %s\n", p.GetName(), terminal.Printable(w.GetText()))
}

func listPolicies(
	ctx context.Context, client cleanupd.Client, options ...grpc.CallOption,
) (*cleanupv1.ListPoliciesResponse, error) {
	return rpc.ListAll(func(token string) (*cleanupv1.ListPoliciesResponse, error) {
		return client.ListPolicies(ctx, &cleanupv1.ListPoliciesRequest{PageToken: token}, options...)
	})
}

func known(ctx context.Context, client cleanupd.Client) (list []cobra.Completion, err error) {
	resp, err := listPolicies(ctx, client)
	for _, p := range resp.GetPolicies() {
		list = append(list, cobra.CompletionWithDesc(p.GetName(), p.GetTable()+": "+condition(p)))
	}
	return list, err
}

func newExport(server *rpc.Server) *cobra.Command {
	return &cobra.Command{
		Use:               "export [NAME …]",
		Short:             "Print policies as apply reads them, all or the named ones",
		Example:           "  cleanupd policies export >policies.yaml\n  cleanupd policies export old-orders",
		ValidArgsFunction: rpc.Complete(server, known),
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) error {
			resp, err := listPolicies(cmd.Context(), client, rpc.Raw())
			if err != nil {
				return err
			}
			chosen, err := choose(resp.GetPolicies(), args)
			if err != nil {
				return err
			}
			text, err := encode(chosen)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		}),
	}
}

// choose returns the policies with these names, or all policies if there are no names.
func choose(all []*cleanupv1.Policy, names []string) ([]*cleanupv1.Policy, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []*cleanupv1.Policy
	for _, name := range names {
		i := slices.IndexFunc(all, func(p *cleanupv1.Policy) bool { return p.GetName() == name })
		if i < 0 {
			return nil, flags.Errorf("there is no policy %q%s", name, similar(name, all))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

const aboutSuggestions = `# Suggested policies, all of them disabled. Correct the columns and the days, enable
# what you want, and then:
#   %s
#   %s
`

// Suggested returns a file for apply with the suggested policies of tables, and comments that say why there is none for
// others.
func Suggested(server *rpc.Server, tables []*cleanupv1.Table) (string, error) {
	var (
		suggested []*cleanupv1.Policy
		without   strings.Builder
	)
	for _, t := range tables {
		p := t.GetSuggestion().GetPolicy()
		size := fmt.Sprintf("%s: %s, about %s", t.GetName(), format.Size(t.GetBytes()+t.GetIndexBytes()),
			format.Count(t.GetRows(), "row", "rows"))
		switch {
		case t.GetSuggestion() == nil:
		case p == nil:
			fmt.Fprintf(&without, "# %s\n", terminal.Printable(size+"; "+t.GetSuggestion().GetReason()))
		default:
			suggested = append(suggested, p)
		}
	}
	text, err := encode(suggested)
	if without.Len() > 0 {
		text += "# No policy is suggested for:\n" + without.String()
	}
	return fmt.Sprintf(aboutSuggestions, server.Command("policies apply", "FILE"), server.Command("run", "--preview")) +
		text, err
}
