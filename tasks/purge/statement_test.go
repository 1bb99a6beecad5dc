package purge

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

func lessThan(column string, number int) sqlexpr.Expr {
	return sqlexpr.Format("r.%s < %s", column, sqlexpr.Arg(number, "int"))
}

func expectSQL(t *testing.T, statement sqlexpr.Expr, want string, args int) {
	t.Helper()
	if sql, values := statement.Build(); sql != want || len(values) != args {
		t.Errorf("got  %s with %d parameters\nwant %s with %d", sql, len(values), want, args)
	}
}

// A window comes before the condition, and limits the statement.
func TestDirectStatement(t *testing.T) {
	t.Parallel()
	deleting := statements{sweep: &Sweep{Relation: "t", Where: lessThan("a", 1)}}
	expectSQL(t, deleting.direct(blockAxis{}.window(0, 3, 4)),
		"DELETE FROM ONLY t AS r WHERE r.ctid >= $1 AND r.ctid < $2 AND (r.a < $3::int) IS TRUE", 3)
	updating := statements{sweep: &Sweep{
		Relation: "t",
		Where:    lessThan("a", 1),
		Set:      []Assignment{{"b", sqlexpr.Arg(2, "int")}, {"c", sqlexpr.SQL("NULL")}},
	}}
	expectSQL(t, updating.direct(rowAxis{found: []pgtype.TID{tid(1, 1)}}.window(0, 0, 1)),
		`UPDATE ONLY t AS r SET "b" = $1::int, "c" = NULL WHERE r.ctid = ANY ($2::tid[]) AND (r.a < $3::int) IS TRUE`,
		3)
}

// An update that may move rows names the partitioned table, and only touches rows of the partition.
func TestStatementOnPickedRowsOfAPartition(t *testing.T) {
	t.Parallel()
	s := statements{
		sweep: &Sweep{Relation: "t_1", Where: sqlexpr.SQL("true"), Set: []Assignment{{"a", sqlexpr.SQL("1")}}},
		root:  partitionRoot{"t", 42},
	}
	expectSQL(t, s.onRows(sqlexpr.SQL("TIDS")),
		`UPDATE t AS r SET "a" = 1 WHERE r.tableoid = 42 AND r.ctid = ANY (ARRAY(TIDS)) AND (true) IS TRUE`, 0)
}

// Rows are picked from a window, up to a limit. The statement that picks and changes them has their condition twice,
// with the same parameter.
func TestPick(t *testing.T) {
	t.Parallel()
	s := statements{sweep: &Sweep{Relation: "t", Where: lessThan("a", 1), Key: []string{"id"}}}
	pick := s.pick(blockAxis{}.window(0, 3, 4), 5, true)
	expectSQL(
		t,
		ofPicked("place", pick),
		`SELECT place FROM (SELECT r.ctid AS place, r.tableoid AS rel, 0 AS id, r."id"::text AS name FROM `+
			"ONLY t AS r WHERE r.ctid >= $1 AND r.ctid < $2 AND (r.a < $3::int) IS TRUE LIMIT $4 FOR UPDATE SKIP LOCKED) AS "+
			"pick",
		4,
	)
	s.sweep.Key = []string{"day", "Nr"}
	named := ofPicked("name", s.pick(sqlexpr.SQL("true"), 5, false))
	if sql, _ := named.Build(); !strings.Contains(sql, `format('(%s)', concat_ws(', ', r."day", r."Nr"))::text AS name`) {
		t.Errorf("a key of two columns is shown by %s", sql)
	}
	if args := s.pickAndChange(nil, pick, true).Args(); len(args) != 4 {
		t.Errorf("picking and changing has the parameters %v", args)
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

// A statement with paired rows has half of the limit, since it may delete a paired row with each row.
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
