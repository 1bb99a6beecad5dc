package forms

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
)

// maxCompletions is how many receipts are offered, the newest ones.
const maxCompletions = 50

func knownReceipts(ctx context.Context, client cleanupd.Client) (list []cobra.Completion, err error) {
	resp, err := client.ListReceipts(ctx, &cleanupv1.ListReceiptsRequest{PageSize: maxCompletions})
	for _, r := range resp.GetReceipts() {
		list = append(list, cobra.CompletionWithDesc(r.GetId(), format.Time(r.GetEndTime())+" by "+r.GetRequestedBy()))
	}
	return list, err
}

func knownPurges(ctx context.Context, client cleanupd.Client) (list []cobra.Completion, err error) {
	resp, err := listPurges(ctx, client)
	for _, p := range resp.GetPurges() {
		about := fmt.Sprintf("%s, older than %d days by %s", p.GetApplication(), p.GetDays(), p.GetDateColumn())
		list = append(list, cobra.CompletionWithDesc(p.GetName(), about))
	}
	return list, err
}
