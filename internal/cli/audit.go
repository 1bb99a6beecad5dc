package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/reflect/protoreflect"
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

func describeDetails(d audit.Details) string {
	before, after := d["from"], d["to"]
	rest := maps.Clone(d)
	var parts []string
	if after != nil || before != nil {
		delete(rest, "from")
		delete(rest, "to")
		parts = describeChange("", before, after)
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		value := rest[name]
		if change, ok := value.(map[string]any); ok && (change["from"] != nil || change["to"] != nil) {
			parts = append(parts, describeChange(name, change["from"], change["to"])...)
			continue
		}
		parts = append(parts, describeValue(name, value))
	}
	return strings.Join(parts, ", ")
}

// describeChange describes a changed value. Of an object, it describes only the fields that changed.
func describeChange(name string, from, to any) (parts []string) {
	before, _ := from.(map[string]any)
	after, _ := to.(map[string]any)
	if before == nil && after == nil {
		return []string{
			strings.TrimSpace(
				fmt.Sprintf("%s from %s to %s", format.FieldName(name), valueText(name, from), valueText(name, to))),
		}
	}
	fields := map[string]any{}
	maps.Copy(fields, before)
	maps.Copy(fields, after)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if old, now := valueText(field, before[field]), valueText(field, after[field]); old != now {
			parts = append(parts, describeChange(field, before[field], after[field])...)
		}
	}
	return parts
}

// describeValue describes a set value. A boolean is described by its name alone.
func describeValue(name string, value any) string {
	if value == true {
		return strings.ReplaceAll(name, "_", " ")
	}
	return strings.ReplaceAll(strings.TrimSuffix(name, "_seconds"), "_", " ") + " " + valueText(name, value)
}

func valueText(name string, value any) string {
	switch value := value.(type) {
	case nil:
		return "none"
	case string:
		return value
	case bool:
		if value {
			return "on"
		}
		return "off"
	case float64:
		return numberText(name, value)
	case []any:
		var texts []string
		for _, one := range value {
			texts = append(texts, valueText("", one))
		}
		return strings.Join(texts, " ")
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

// numberText infers from the name whether a duration is in nanoseconds or seconds.
func numberText(name string, n float64) string {
	f := guards.fields.ByJSONName(format.FieldName(name))
	switch {
	case f != nil && f.Kind() == protoreflect.MessageKind: // stored as time.Duration
		return format.Period(time.Duration(n))
	case strings.HasSuffix(name, "_seconds"):
		return format.Period(time.Duration(n * float64(time.Second)))
	case strings.HasSuffix(strings.ToLower(name), "days"):
		return format.Count(int64(n), "day", "days")
	case name == "undo": // of a policy, stored as time.Duration
		return format.Period(time.Duration(n))
	case name == "": // an id
		return fmt.Sprintf("%.0f", n)
	}
	return humanize.CommafWithDigits(n, 2)
}
