package rowkey_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cleanupd/cleanupd/internal/rowkey"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                                     nil,
		"-4711":                                {"", "-4711"},
		"a text, with a comma":                 {"", "a text, with a comma"},
		"igroupid=5":                           {"igroupid", "5"},
		"igroupid=5, irecipientid=-7":          {"igroupid", "5", " irecipientid", "-7"},
		"iId=5,tsLog=2026-02-28T12:00:00Z":     {"iId", "5", "tsLog", "2026-02-28T12:00:00Z"},
		"tenant_id=1,name=bug, fix":            {"tenant_id", "1", "name", "bug, fix"},
		"skey=a,b=c":                           {"skey", "a", "b", "c"},
		"skey=a=b":                             {"skey", "a=b"},
		"igroupid=":                            {"igroupid", ""},
		"=5":                                   {"", "5"},
		"saddress=ann,joe@example.com,iid=007": {"saddress", "ann,joe@example.com", "iid", "007"},
	} {
		var got []string
		for _, c := range rowkey.Parse(text) {
			got = append(got, c.GetColumn(), c.GetValue())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Parse(%q) (-want +got):\n%s", text, diff)
		}
	}
}
