package policies

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
)

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
