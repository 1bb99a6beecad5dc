package cli

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
)

// withRun is rpc.WithClient for commands whose first argument is the id of a run, or the end of one. args are the
// arguments after it.
func withRun(
	server *rpc.Server, do func(cmd *cobra.Command, client cleanupd.Client, id string, args []string) error,
) func(*cobra.Command, []string) error {
	return rpc.WithClient(server, func(cmd *cobra.Command, client cleanupd.Client, args []string) error {
		id, err := runID(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		return do(cmd, client, id, args[1:])
	})
}

// Ids begin with the time, so that only their ends tell runs of one day apart. A whole id has 32 digits.
var (
	endOfID  = regexp.MustCompile(`^[0-9a-fA-F-]{4,31}$`)
	tooShort = regexp.MustCompile(`^[0-9a-fA-F-]{1,3}$`)
)

// runID completes the end of a run's id. It leaves it to the server to judge what cannot be one.
func runID(ctx context.Context, client cleanupd.Client, given string) (string, error) {
	if tooShort.MatchString(given) {
		return "", flags.Errorf("the end of a run's id has at least 4 characters, and %q only %d", given, len(given))
	}
	if !endOfID.MatchString(given) {
		return given, nil
	}
	all, err := listRuns(ctx, client, math.MaxInt32, &cleanupv1.ListRunsRequest{})
	if err != nil {
		return "", err
	}
	var ids []string
	for _, r := range all.GetRuns() {
		if strings.HasSuffix(r.GetId(), strings.ToLower(given)) {
			ids = append(ids, r.GetId())
		}
	}
	switch len(ids) {
	case 0:
		return "", fmt.Errorf("the id of no run ends with %s: cleanupd runs lists them", given)
	case 1:
		return ids[0], nil
	}
	return "", fmt.Errorf("the ids of %d runs end with %s: %s", len(ids), given, strings.Join(ids, ", "))
}
