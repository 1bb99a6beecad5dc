package cli

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// A task that will fall behind does so from a day on, and one that has does since then.
func TestTrendTimes(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		trend cleanupv1.Trend
		days  int
	}{
		"catching up until ":    {cleanupv1.Trend_TREND_CATCHING_UP, 3},
		"falling behind since ": {cleanupv1.Trend_TREND_FALLING_BEHIND, -3},
		"falling behind from ":  {cleanupv1.Trend_TREND_FALLING_BEHIND, 3},
	} {
		at := time.Now().AddDate(0, 0, c.days)
		got := trend(&cleanupv1.TaskForecast{Trend: c.trend, TrendTime: timestamppb.New(at), DueNow: new(int64)})
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s in %d days: %q, want %q", c.trend, c.days, got, want+"…")
		}
	}
}
