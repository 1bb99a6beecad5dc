package forms

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
)

// resumeErasures waits for the end of the erasures and sweeps that were interrupted, the oldest first. The server in
// this process carries them out, unless another one does.
func resumeErasures(cmd *cobra.Command, client cleanupd.Client, server *rpc.Server) error {
	receipts, err := client.ListReceipts(cmd.Context(), &cleanupv1.ListReceiptsRequest{})
	if err != nil {
		return err
	}
	w := cmd.ErrOrStderr()
	for _, r := range slices.Backward(receipts.GetReceipts()) {
		if r.GetEndTime() != nil || r.GetPurge() != "" {
			continue
		}
		fmt.Fprintf(w, "The erasure %s of %s has not ended, and is resumed first.\n", r.GetId(),
			format.Time(r.GetCreateTime()))
		server.WorkOnErasures()
		for r.GetEndTime() == nil {
			select {
			case <-cmd.Context().Done():
				return cmd.Context().Err()
			case <-time.After(200 * time.Millisecond):
			}
			got, err := client.GetReceipt(cmd.Context(), &cleanupv1.GetReceiptRequest{ReceiptId: r.GetId()})
			if err != nil {
				return err
			}
			r = got.GetReceipt()
		}
		result := "everything was erased"
		if !r.GetSucceeded() {
			result = "not everything was erased: see cleanupd userdata receipt " + r.GetId()
		}
		fmt.Fprintf(w, "The erasure %s has ended; %s.\n", r.GetId(), result)
	}
	return nil
}

// stopped explains the error of a command without a server that was interrupted during an erasure.
func stopped(cmd *cobra.Command, err error) error {
	if cmd.Context().Err() == nil {
		return err
	}
	return errors.New("an erasure that has started stops now: the next cleanupd userdata erase or sweep, or a server, " +
		"resumes it")
}
