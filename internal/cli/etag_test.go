package cli

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/cli/forms"
)

// changed is a server whose settings change between each read and the next write. It records the etag and the mask of
// the last write.
type changed struct {
	cleanupv1.UnimplementedCleanupServiceServer
	cleanupv1.UnimplementedGuardServiceServer
	cleanupv1.UnimplementedPolicyServiceServer
	cleanupv1.UnimplementedUserDataServiceServer
	etag string
	mask []string
}

func (c *changed) write(etag string, mask *fieldmaskpb.FieldMask) error {
	c.etag, c.mask = etag, mask.GetPaths()
	return status.Error(codes.Aborted, "stale")
}

func (*changed) GetGuards(context.Context, *cleanupv1.GetGuardsRequest) (*cleanupv1.GetGuardsResponse, error) {
	return &cleanupv1.GetGuardsResponse{Etag: "of guards"}, nil
}

func (c *changed) SetGuards(_ context.Context, in *cleanupv1.SetGuardsRequest) (*cleanupv1.SetGuardsResponse, error) {
	return nil, c.write(in.GetEtag(), in.GetUpdateMask())
}

func (*changed) GetSchedule(context.Context, *cleanupv1.GetScheduleRequest) (*cleanupv1.GetScheduleResponse, error) {
	return &cleanupv1.GetScheduleResponse{Etag: "of the schedule"}, nil
}

func (c *changed) SetSchedule(
	_ context.Context, in *cleanupv1.SetScheduleRequest,
) (*cleanupv1.SetScheduleResponse, error) {
	return nil, c.write(in.GetEtag(), in.GetUpdateMask())
}

func (*changed) GetOptions(context.Context, *cleanupv1.GetOptionsRequest) (*cleanupv1.GetOptionsResponse, error) {
	return &cleanupv1.GetOptionsResponse{Etag: "of options"}, nil
}

func (c *changed) SetOptions(
	_ context.Context, in *cleanupv1.SetOptionsRequest,
) (*cleanupv1.SetOptionsResponse, error) {
	return nil, c.write(in.GetEtag(), in.GetUpdateMask())
}

// Each page has one purge.
func (*changed) ListFormsPurges(
	_ context.Context, in *cleanupv1.ListFormsPurgesRequest,
) (*cleanupv1.ListFormsPurgesResponse, error) {
	if in.GetPageToken() == "" {
		return &cleanupv1.ListFormsPurgesResponse{
			Purges:        []*cleanupv1.FormsPurge{{Name: "a", Etag: "of a"}},
			NextPageToken: "second",
		}, nil
	}
	return &cleanupv1.ListFormsPurgesResponse{Purges: []*cleanupv1.FormsPurge{{Name: "b", Etag: "of b"}}}, nil
}

func (c *changed) SetFormsPurge(
	_ context.Context, in *cleanupv1.SetFormsPurgeRequest,
) (*cleanupv1.SetFormsPurgeResponse, error) {
	return nil, c.write(in.GetPurge().GetEtag(), in.GetUpdateMask())
}

func (c *changed) DeleteFormsPurge(
	_ context.Context, in *cleanupv1.DeleteFormsPurgeRequest,
) (*cleanupv1.DeleteFormsPurgeResponse, error) {
	return nil, c.write(in.GetEtag(), nil)
}

// Each command that changes settings sends the etag that it has read and a mask of the given fields. If the settings
// have changed meanwhile, it asks the user to run it again.
func TestChangesAreConditional(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &changed{}
	server := grpc.NewServer()
	cleanupv1.RegisterCleanupServiceServer(server, c)
	cleanupv1.RegisterGuardServiceServer(server, c)
	cleanupv1.RegisterPolicyServiceServer(server, c)
	cleanupv1.RegisterUserDataServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	const (
		again = "nothing was changed: somebody else changed the same settings meanwhile; run the command again"
		cron  = "cron more_crons once"
	)
	for _, x := range []struct {
		command         *cobra.Command
		args            string
		etag, mask, err string
	}{
		{NewGuards(), "set minRows=1 maxIdle=default", "of guards", "min_rows max_idle", again},
		{NewSchedule(), "set --enabled=false --max-duration 0", "of the schedule", "enabled max_duration", again},
		{NewSchedule(), "set --next-plan x --cron @daily", "of the schedule", "next_plan " + cron, again},
		{NewSchedule(), "set --once 2999-01-01T00:00:00Z", "of the schedule", cron, again},
		{NewOptions(), "set --yes visitorPurgeDelayDays=1", "of options", "visitor_purge_delay_days", again},
		{NewOptions(), "reset visitorPurgeDelayDays", "of options", "visitor_purge_delay_days", again},
		{NewOptions(), "reset --etag mine visitorPurgeDelayDays", "mine", "visitor_purge_delay_days", "stale"},
		{forms.NewCommand(), "purges set b --days 1", "of b", "", again},
		{forms.NewCommand(), "purges set c --days 1", "", "", again},
		{forms.NewCommand(), "purges delete b", "of b", "", again},
	} {
		x.command.SetArgs(append(strings.Fields(x.args), "--server", listener.Addr().String()))
		x.command.SilenceErrors, x.command.SilenceUsage = true, true
		err := x.command.ExecuteContext(t.Context())
		if mask := strings.Join(c.mask, " "); err == nil || err.Error() != x.err || c.etag != x.etag || mask != x.mask {
			t.Errorf("%s %s: etag %q, mask %q, error %v", x.command.Name(), x.args, c.etag, mask, err)
		}
	}
}
