package policies

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
)

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
