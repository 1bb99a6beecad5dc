package purge

import "testing"

// The parameters of a window follow the parameters of the condition and of the update.
func TestDirectStatement(t *testing.T) {
	t.Parallel()
	deleting := &Sweep{Relation: "t", Where: "r.a < $1", Args: []any{1}}
	updating := &Sweep{
		Relation: "t",
		Where:    "r.a < $1",
		Args:     []any{1},
		Set:      []Assignment{{"b", "$2"}, {"c", "NULL"}},
		SetArgs:  []any{2},
	}
	for _, c := range []struct {
		s    statements
		want string
	}{
		{
			statements{sweep: deleting, axis: blockAxis{}},
			"DELETE FROM ONLY t AS r WHERE r.ctid >= $2 AND r.ctid < $3 AND (r.a < $1) IS TRUE",
		},
		{
			statements{sweep: updating, axis: rowAxis{}},
			"UPDATE ONLY t AS r SET b = $2, c = NULL WHERE r.ctid = ANY ($3::tid[]) AND (r.a < $1) IS TRUE",
		},
	} {
		if got := c.s.direct(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// An update that may move rows names the partitioned table, and only touches rows of the partition.
func TestStatementOnPickedRowsOfAPartition(t *testing.T) {
	t.Parallel()
	s := statements{
		sweep: &Sweep{Relation: "t_1", Where: "true", Set: []Assignment{{"a", "1"}}},
		axis:  blockAxis{},
		root:  partitionRoot{"t", 42},
	}
	const want = "UPDATE t AS r SET a = 1 WHERE r.tableoid = 42 AND r.ctid = ANY (ARRAY(TIDS)) AND (true) IS TRUE"
	if got := s.onRows("TIDS"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The limit of picked rows is the parameter before the bounds of the window.
func TestPick(t *testing.T) {
	t.Parallel()
	s := statements{sweep: &Sweep{Relation: "t", Where: "r.a = $1", Key: "id"}, axis: blockAxis{}}
	const want = `SELECT place FROM (SELECT r.ctid AS place, 0 AS id, r."id"::text AS name FROM ONLY t AS r ` +
		"WHERE r.ctid >= $3 AND r.ctid < $4 AND (r.a = $1) IS TRUE LIMIT $2 FOR UPDATE SKIP LOCKED) AS pick"
	if got := s.ofPicked("place", 1, true); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The last key of a window may have more rows, unless all rows have it.
func TestWholeKeys(t *testing.T) {
	t.Parallel()
	if keys, end := wholeKeys([]int64{1, 2, 2, 5, 5}); len(keys) != 3 || end != 4 {
		t.Errorf("keys %v up to %d", keys, end)
	}
	if keys, end := wholeKeys([]int64{5, 5}); len(keys) != 2 || end != 5 {
		t.Errorf("keys %v up to %d", keys, end)
	}
}

// A statement may delete as many paired rows as rows.
func TestMaxRowsOfAStatement(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		paired      *Paired
		limit, want int
	}{{nil, 0, 1000}, {nil, 300, 300}, {&Paired{}, 300, 150}, {&Paired{}, 1, 1}} {
		if got := (&Sweep{Limit: 1000, Paired: c.paired}).maxRows(c.limit); got != c.want {
			t.Errorf("%d rows with a cap of %d, paired: %t; want %d", got, c.limit, c.paired != nil, c.want)
		}
	}
}
