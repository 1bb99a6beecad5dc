package main

import (
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// Deliveries that a run leaves on mid-sourcing servers are reported and listed, one printable line each. Deliveries of
// an account that is kept are not deleted.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`INSERT INTO NmsExtAccount (iExtAccountId, sName) VALUES (1, 'far'), (2, E'e\x1b[31m'), (4, 'ours');
			INSERT INTO NmsDelivery (iDeliveryId, sLabel, iDeleteStatus, tsDelete, iDeliveryMode, iMidRemoteId,
			iDeliveryProviderId)
		SELECT i, E'Sale\x1b]0;fake\x07\tof\n' || i, 1, '2000-01-01', 4, 100 + i, i FROM generate_series(1, 4) i`,
	)
	r := startServer(t, "--database-url", db.URL(), "--mid-sourcing", "ours=keep")
	if code, out, errs := r.run(t, "run --task deliveries"); code != 0 || !strings.Contains(
		out, "succeeded, 3 rows deleted, 3 deliveries retained on mid-sourcing servers\n",
	) ||
		!strings.Contains(out, `account "far"`) {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	if db.Int("SELECT iDeliveryId FROM NmsDelivery") != 4 {
		t.Error("what was to be kept is gone")
	}
	for _, c := range []struct {
		args  string
		lines int
		says  []string
		more  bool
	}{
		{
			"mid-sourcing leftovers",
			4,
			[]string{"ACCOUNT ", "\n(none) ", "\ne\\x1b[31m       102 ", "\nfar  ", ` Sale\x1b]0;fake\a of 1` + "\n"},
			false,
		},
		{"mid-sourcing leftovers --limit 1", 2, []string{"\n(none)  "}, true},
		{"mid-sourcing leftovers --account far", 2, []string{"\nfar  ", " 101 "}, false},
		{"mid-sourcing leftovers --account=", 2, []string{"\n(none)  ", " 103 "}, false},
		{"mid-sourcing leftovers --account near", 1, []string{"ACCOUNT "}, false},
	} {
		code, out, errs := r.run(t, c.args)
		if code != 0 || strings.Count(out, "\n") != c.lines || strings.Contains(errs, "--limit") != c.more ||
			(!c.more && errs != "") ||
			strings.ContainsAny(out, "\x1b\x07\t") {
			t.Errorf("%s: %d %q %s", c.args, code, out, errs)
		}
		for _, part := range c.says {
			if !strings.Contains(out, part) {
				t.Errorf("%s: %q does not say %q", c.args, out, part)
			}
		}
	}
}
