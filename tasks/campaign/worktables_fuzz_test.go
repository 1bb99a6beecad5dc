package campaign_test

import (
	"math"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// The id of a work table fits into 32 bits, and no other id has the same name.
func FuzzWorkTableName(f *testing.F) {
	for _, text := range []string{
		"", "0", "1", "12_1", "012", "-5", "+5", "2147483647", "2147483648", "4294967295_x", "4294967296",
		"99999999999", "12345678901", "7_grp8", "7_grp08", "7_grp4294967295", "7_grp4294967296", "7_grp", "7_grp8_tmp",
		"7_grp8_grp9", "7_grp8x_grp9_grp10", "7_grp_grp8", "1\n2", "１２", "1;DROP TABLE x",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, rest, ok := campaign.ParseID(text)
		if !ok {
			return
		}
		if id == 0 || id < math.MinInt32 || id > math.MaxInt32 {
			t.Errorf("%q has the id %d, which exceeds 32 bits", text, id)
		}
		if rest != "" && rest[0] >= '0' && rest[0] <= '9' {
			t.Errorf("%q: the id ends before its digits do", text)
		}
		if again := campaign.WorkTableName("", id) + rest; again != text {
			t.Errorf("%q has the id %d, whose name is %q", text, id, again)
		}
		for _, list := range (campaign.WorkTable{Name: text}).ListIDs() {
			if part := campaign.WorkTableName("_grp", list); !strings.HasSuffix(text, part) &&
				!strings.Contains(text, part+"_") {
				t.Errorf("%q holds the data of list %d", text, list)
			}
		}
	})
}
