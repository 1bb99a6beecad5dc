package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/service"
	"github.com/cleanupd/cleanupd/service/audit"
)

func NewAudit() *cobra.Command {
	var (
		server rpc.Server
		since  = flags.NewSince("30d")
		filter string
		limit  int32
		asJSON bool
		output format.Output
	)
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List who did what, newest first",
		Long: "List the calls that changed something, or tried to, or searched for a person, newest first: who made\n" +
			"them, with which role, from where, and how they ended. The service appends them to cleanupd.audit " +
			"and\nnever deletes them.",
		Example: "  cleanupd audit --since 24h --filter setpolicy\n  cleanupd audit --database-url " +
			"postgres://neolane@db.example/campaign\n  cleanupd audit -o json | jq 'select(.result != \"OK\")'",
		Args: flags.NoArguments,
		RunE: rpc.WithClient(&server, func(cmd *cobra.Command, client cleanupd.Client, _ []string) error {
			if limit < 1 {
				return flags.Errorf("--limit must be 1 or more, not %d", limit)
			}
			if asJSON {
				output = "json"
			}
			entries, err := requestAudit(cmd.Context(), client,
				&cleanupv1.ListAuditRequest{SinceTime: timestamppb.New(since.Time()), Filter: filter}, int(limit))
			if err != nil {
				return err
			}
			return printAudit(cmd, output, entries, int(limit))
		}),
	}
	server.AddFlags(cmd)
	f := cmd.Flags()
	f.Var(&since, "since", "how far to look back: 24h, 7d, a date or a time")
	f.StringVar(&filter, "filter", "",
		"only entries with this text, in any case, such as setpolicy, a caller, a table or PERMISSION_DENIED")
	f.Int32Var(&limit, "limit", 1000, "how many of the newest to list at most, 1 or more")
	f.BoolVar(&asJSON, "json", false, "the same as --output json")
	_ = f.MarkHidden("json") // it fails only for an unknown flag
	output.AddFlag(cmd)
	return cmd
}

func requestAudit(
	ctx context.Context, client cleanupd.Client, in *cleanupv1.ListAuditRequest, limit int,
) (entries []audit.Entry, err error) {
	for {
		in.PageSize = int32(min(limit-len(entries), service.MaxAudit))
		page, err := client.ListAudit(ctx, in, rpc.Raw())
		if err != nil {
			return nil, err
		}
		for _, e := range page.GetEntries() {
			entries = append(entries, auditEntry(e))
		}
		if in.PageToken = page.GetNextPageToken(); in.PageToken == "" || len(entries) >= limit {
			return entries, nil
		}
	}
}

func auditEntry(e *cleanupv1.AuditEntry) audit.Entry {
	entry := audit.Entry{
		Time:    e.GetTime().AsTime(),
		Subject: connection.Text(e.GetSubject()),
		Address: e.GetAddress(),
		RPC:     e.GetRpc(),
		Details: e.GetDetails().AsMap(),
		Result:  code.Code(e.GetStatusCode()).String(),
	}
	if e.GetRole() != cleanupv1.Role_ROLE_UNSPECIFIED {
		entry.Role = format.EnumName(e.GetRole())
	}
	if e.GetCredentialType() != cleanupv1.CredentialType_CREDENTIAL_TYPE_UNSPECIFIED {
		entry.By = format.EnumName(e.GetCredentialType())
	}
	return entry
}

// printAudit prints entries as a table, or as JSON with one entry per line.
func printAudit(cmd *cobra.Command, output format.Output, entries []audit.Entry, limit int) (err error) {
	w := cmd.OutOrStdout()
	if output == format.Table {
		err = printAuditTable(w, entries)
	}
	for _, e := range entries {
		if output != format.Table && err == nil {
			line, marshalErr := json.Marshal(e)
			err = errors.Join(marshalErr, output.PrintLine(w, []byte(terminal.PrintableJSON(line))))
		}
	}
	if len(entries) == limit {
		fmt.Fprintln(cmd.ErrOrStderr(), "There may be more entries: a higher --limit lists them.")
	}
	return err
}

func printAuditTable(w io.Writer, entries []audit.Entry) error {
	rows := []terminal.Row{{"TIME", "WHO", "ROLE", "FROM", "WHAT", "RESULT", "DETAILS"}}
	for _, e := range entries {
		rows = append(rows,
			terminal.Row{
				e.Time.UTC().Format(time.RFC3339), string(e.Subject), e.Role, e.Address, e.RPC, e.Result,
				describeDetails(e.Details),
			})
	}
	return terminal.ScreenOf(w).PrintTable(rows)
}
