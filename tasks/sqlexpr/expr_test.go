package sqlexpr

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func expect(t *testing.T, e Expr, sql string, args ...any) {
	t.Helper()
	if gotSQL, gotArgs := e.Build(); gotSQL != sql || !reflect.DeepEqual(gotArgs, args) {
		t.Errorf("got  %s with %v\nwant %s with %v", gotSQL, gotArgs, sql, args)
	}
}

// Parameters are numbered in the order in which they first appear. An argument has one number, however often it
// appears.
func TestBuild(t *testing.T) {
	t.Parallel()
	one, two := Arg(1, "int"), Arg("b", "")
	expect(t, Format("%[2]s < %[1]s AND '$1 %%' < %[2]s AND %[3]d", one, two, 7), "$1 < $2::int AND '$1 %' < $1 AND 7",
		"b", 1)
	expect(t, Join(" AND ", SQL(""), one, Expr{}, two, one), "$1::int AND $2 AND $1::int", 1, "b")
	expect(t, Format("(%s) IS TRUE", Or()), "() IS TRUE")
}

// Text in a name is not mistaken for a parameter, or for a verb of a format.
func TestQuotedNames(t *testing.T) {
	t.Parallel()
	named := Format(`r.%s = %s`, `"a$1%s"`, Arg(1, "int"))
	expect(t, Format("%s AND %s", Arg(2, "int"), named), `$1::int AND r."a$1%s" = $2::int`, 2, 1)
}

func TestIDs(t *testing.T) {
	t.Parallel()
	ids := []int64{-3, 7}
	in := Format("NOT %s", OneOf("r.a", ids))
	expect(t, in, "NOT r.a IN (SELECT unnest($1::bigint[]))", ids)
	expect(t, in.Constants(), "NOT r.a::bigint = ANY ($1::bigint[])", ids)
	expect(t, Among("r.a", "bigint", ids), "r.a = ANY ('{-3,7}'::bigint[])")
	expect(t, Among("r.a", "", ids), "r.a::bigint = ANY ('{-3,7}'::bigint[])")
	expect(t, Among("r.a", "smallint", []int64{-32_769, -32_768, 32_767, 32_768}),
		"r.a = ANY ('{-32768,32767}'::smallint[])")
	expect(t, Among("r.a", "integer", []int64{1 << 31}), "false")
	for id := range int64(maxHashed) {
		ids = append(ids, 8+id)
	}
	if sql, _ := Among("r.a", "bigint", ids).Build(); !strings.Contains(sql, "[width_bucket(r.a, '{-3,7,8,9") {
		t.Errorf("%d ids are not searched for by halves: %.100s", len(ids), sql)
	}
}

// Binding changes the values, but neither the SQL nor the original expression.
func TestBind(t *testing.T) {
	t.Parallel()
	arg := Arg("x", "int")
	e := Format("%[1]s + %[1]s + %[2]s", arg, Arg("y", ""))
	bound, err := e.Bind(func(value any) (any, error) { return value.(string) + "!", nil })
	if err != nil {
		t.Fatal(err)
	}
	expect(t, bound, "$1::int + $1::int + $2", "x!", "y!")
	expect(t, e, "$1::int + $1::int + $2", "x", "y")
	failed := errors.New("failed")
	if _, err := e.Bind(func(any) (any, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Errorf("got the error %v", err)
	}
}
