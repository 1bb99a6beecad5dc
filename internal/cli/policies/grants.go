package policies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/service"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

func newGrants(server *rpc.Server, output *format.Output) *cobra.Command {
	var undo time.Duration
	cmd := &cobra.Command{
		Use:   "grants FILE",
		Short: "Print the rights that the policies of a file need, as one SQL script",
		Long: "Print the rights that the policies of a file need, as one SQL script for the owner of the tables:\n" +
			"schemas, tables and their partitions, tables that rules read or whose rows foreign keys delete,\n" +
			"and sequences. It has all of them, whether or not they are granted already, and can be run again. What\n" +
			"runs can do without is a comment. FILE is as for apply, which needs the rights. Nothing is stored.",
		Example: "  cleanupd policies grants policies.yaml >grants.sql\n" +
			"  cleanupd policies grants policies.yaml | psql -X -d shop -U owner",
		Args:              flags.OneArgument("a file with policies"),
		ValidArgsFunction: rpc.FirstArgument(flags.CompleteFiles),
		RunE: rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) error {
			entries, err := readFile(cmd, args[0])
			if err != nil {
				return err
			}
			for _, e := range entries {
				if undo > 0 && e.policy.GetAssign() == nil {
					e.policy.Undo = durationpb.New(undo)
				}
			}
			var all *cleanupv1.GetPolicyGrantsResponse
			if server.InProcess() {
				all, err = grantsOfDatabase(cmd, server, args[0], entries)
			} else {
				all, err = grantsOfServer(cmd, client, entries)
			}
			if err != nil {
				return err
			}
			if *output != format.Table {
				return output.PrintMessage(cmd.OutOrStdout(), all)
			}
			return printGrants(cmd.OutOrStdout(), all.GetStatements())
		}),
	}
	flags.DurationVar(cmd.Flags(), &undo, "undo", 0, "also those of cleanupd run --undo with this time")
	flags.WithoutVariable(cmd.Flags(), "undo")
	return cmd
}

func grantsOfServer(cmd *cobra.Command, client cleanupd.Client, entries []entry) (
	*cleanupv1.GetPolicyGrantsResponse, error,
) {
	all := &cleanupv1.GetPolicyGrantsResponse{}
	var wrong []error
	for _, e := range entries {
		resp, err := client.GetPolicyGrants(cmd.Context(),
			&cleanupv1.GetPolicyGrantsRequest{Policy: e.policy}, rpc.Raw())
		switch {
		case isRefusal(err):
			wrong = append(wrong, e.explain(err))
		case err != nil:
			return nil, err
		}
		all.Statements = rules.AddGrants(all.Statements, resp.GetStatements()...)
	}
	return all, errors.Join(wrong...)
}

// grantsOfDatabase needs no rights but to connect, and no schema cleanupd.
func grantsOfDatabase(cmd *cobra.Command, server *rpc.Server, file string, entries []entry) (
	*cleanupv1.GetPolicyGrantsResponse, error,
) {
	all := &cleanupv1.GetPolicyGrantsResponse{}
	err := lookWith(cmd.Context(), server, file, entries, func(look service.Look, ctx context.Context) (err error) {
		all.Statements, err = look.Grants(ctx)
		return err
	})
	return all, err
}

// printGrants prints grants on future tables as comments, since they concern more than the policies. Memberships come
// after the transaction, since the owner of the tables may not be allowed to grant them.
func printGrants(w io.Writer, statements []string) error {
	isDefault := func(statement string) bool { return strings.HasPrefix(statement, "ALTER DEFAULT PRIVILEGES") }
	isComment := func(statement string) bool { return strings.HasPrefix(statement, "--") }
	isMembership := func(statement string) bool { return !isComment(statement) && !strings.Contains(statement, " ON ") }
	isSequence := func(statement string) bool { return strings.HasPrefix(statement, "GRANT SELECT ON SEQUENCE ") }
	isGrant := func(statement string) bool {
		return !isDefault(statement) && !isComment(statement) && !isMembership(statement) && !isSequence(statement)
	}
	script := &strings.Builder{}
	print := func(format, before string, is func(statement string) bool) {
		for _, s := range statements {
			if is(s) {
				fmt.Fprintf(script, before+format+"\n", s)
				before = ""
			}
		}
	}
	fmt.Fprintln(script, "BEGIN;")
	print("%s;", "", isGrant)
	print("%s;", "-- Forecasts read when the sequences of the tables run out:\n", isSequence)
	fmt.Fprintln(script, "COMMIT;")
	print("%s;", "-- Only an owner may detach partitions. A superuser, or who has the ADMIN OPTION, makes the role a "+
		"member,\n-- with all that the owner may do:\n", isMembership)
	print("%s", "", isComment)
	print("-- %s;", "-- Partitions that are made later need grants of their own: run a new script of this kind then.\n"+
		"-- The following grants them in advance, but on ALL tables that the owner makes in the schema:\n", isDefault)
	_, err := io.WriteString(w, script.String())
	return err
}
