package cleanup

import (
	"testing"
)

func TestCompareTables(t *testing.T) {
	t.Parallel()
	tables := []PreviewTable{
		{Table: "both", Action: ActionDelete, Rows: 3},
		{Table: "new", Action: ActionDelete, Rows: 2},
	}
	stored := []PreviewTable{
		{Table: "both", Action: ActionDelete, Rows: 1},
		{Table: "both", Action: ActionUpdate, Rows: 4},
		{Table: "old", Action: ActionDrop, Tables: 5},
	}
	compared := compareTables(tables, stored)
	for i, want := range []struct {
		table    string
		rows     int64
		baseline int64
	}{{"both", 3, 1}, {"new", 2, 0}, {"both", 0, 4}, {"old", 0, 5}} {
		got := compared[i]
		if got.Table != want.table || got.Rows != want.rows || *got.BaselineRows != want.baseline {
			t.Errorf("got %s with %d rows and baseline %d, want %+v", got.Table, got.Rows, *got.BaselineRows, want)
		}
	}
	if len(compared) != 4 {
		t.Errorf("got %d tables, want 4", len(compared))
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	var ts tables
	ts.at("t", ActionDelete, "") // for a remark
	ts.at("t", ActionDelete, "old")
	if rule := ts.at("t", ActionDelete, "older").Rule; rule != "old; or older" {
		t.Errorf("got rule %q", rule)
	}
	if taken := ts.take(); taken != nil {
		t.Errorf("a table without rows is shown: %v", taken[0].Table)
	}
	ts.at("t", ActionDelete, "").Rows = 1
	if taken := ts.take(); len(taken) != 1 {
		t.Errorf("got %d tables, want 1", len(taken))
	}
	if ts.has("t", ActionDelete) {
		t.Error("taken tables are not forgotten")
	}
}
