package main

import (
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// Holds are created, listed, released and exported; a mistake creates none.
func TestHolds(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		"INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete) VALUES (1, 1, '2000-01-01'), (2, 1, " +
			"'2000-01-01')",
	)
	r := startServer(t, "--database-url", db.URL())
	do := func(args ...string) (int, string, string) {
		return cleanupd(t, append(args, "--server", r.grpc)...)
	}
	for _, args := range [][]string{
		{"--reason", "a"},
		{"--reason", "a", "--deliveries", "1", "--everything"},
		{"--deliveries", "1"},
		{"--deliveries", "x", "--reason", "a"},
		{"--deliveries", "1", "--reason", "a", "--expire-time", "tomorrow"},
		{"--deliveries", "0", "--reason", "a"},
		{"--table", "no_such_table", "--reason", "a"},
	} {
		if code, out, errs := do(append([]string{"holds", "create"}, args...)...); code != 2 || out != "" ||
			strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: %d %q %q", args, code, out, errs)
		}
	}
	code, out, errs := do("holds", "create", "--deliveries", "1,3,4,5,6,7", "--reason", "lawsuit \x1b[31m12")
	if code != 0 || !strings.Contains(out, "deliveries 1, 3, 4, 5, 6, and 1 more") ||
		!strings.Contains(out, `lawsuit \x1b[31m12`) ||
		errs != "" {
		t.Fatalf("%d %q %q", code, out, errs)
	}
	if code, _, errs := do(
		"holds", "create", "--recipients", "1", "--reason", "a person", "--expire-time", "2999-01-31T00:00:00Z",
	); code != 0 || !strings.Contains(errs, "Not on hold") ||
		!strings.Contains(errs, "nmscouponvalue") {
		t.Errorf("%d %q", code, errs)
	}
	if code, out, _ := do("run", "--task", "deliveries"); code != 0 || db.Int(
		"SELECT iDeliveryId FROM NmsDelivery WHERE iDeliveryId > 0",
	) != 1 ||
		!strings.Contains(out, "1 obsolete row is on hold") {
		t.Errorf("%d %s", code, out)
	}
	code, out, errs = do("holds")
	if code != 0 || strings.Count(out, "\n") != 3 || !strings.Contains(out, "2999-01-31T00:00:00Z") {
		t.Fatalf("%d %q %q", code, out, errs)
	}
	id := strings.Fields(strings.Split(out, "\n")[2])[0]
	if code, out, _ := do("holds", "release", id[len(id)-6:]); code != 0 || !strings.Contains(out, "released 2") {
		t.Errorf("%d %q", code, out)
	}
	if code, out, _ := do("holds", "list", "--limit", "1", "-o", "json"); code != 0 || strings.Contains(out, id) ||
		!strings.Contains(out, `"recipients"`) {
		t.Errorf("%d %q", code, out)
	}
	if code, out, _ := do("holds", "list", "--include-ended"); code != 0 || !strings.Contains(out, id) {
		t.Errorf("%d %q", code, out)
	}
	if code, out, _ := do("holds", "export"); code != 0 || strings.Count(out, "\n") != 2 || !strings.HasPrefix(
		out, "{",
	) ||
		!strings.Contains(strings.Split(out, "\n")[0], id) {
		t.Errorf("%d %q", code, out)
	}
	if code, _, errs := do("holds", "release", "x"); code == 0 || !strings.Contains(errs, "no such hold") {
		t.Errorf("%d %q", code, errs)
	}
	if code, _, errs := do("holds", "release"); code != 2 || !strings.Contains(errs, "the id of a hold") {
		t.Errorf("%d %q", code, errs)
	}
}

// A mistake in a hold is named by the flag that was typed.
func TestHoldsThatAreRefused(t *testing.T) {
	t.Parallel()
	f := newPolicyFiles(t)
	for command, want := range map[string]string{
		"--rows order.customer=17": `--rows: there is no table "order", or the role cannot use its schema (did you ` +
			`mean orders?)`,
		"--rows orders.custmer=17":  `--rows: "public"."orders" has no column "custmer"`,
		"--table order":             `--table: there is no table "order" (did you mean orders?)`,
		"--table orders":            `--table: no policy, and no foreign key to its table, reaches the table "orders"`,
		"--rows orders.customer=17": `--rows: no task or policy deletes or changes rows of`,
	} {
		code, out, errs := f.run(t, "holds create --reason lawsuit "+command)
		if code != 2 || out != "" || !strings.HasPrefix(errs, "cleanupd: "+want) {
			t.Errorf("%s: %d %s %s", command, code, out, errs)
		}
	}
}

// The response to a new hold of rows says how many rows it has now, and warns if there are none.
func TestHoldsSayHowManyRows(t *testing.T) {
	t.Parallel()
	f := newPolicyFiles(t)
	if code, _, errs := f.do("apply", f.file(twoPolicies), "--yes"); code != 0 {
		t.Fatal(errs)
	}
	f.db.Do("INSERT INTO orders (id, customer) SELECT i, 0 FROM generate_series(1001, 12000) i")
	for value, want := range map[string]string{
		"17": "\nIt holds 1 row of public.orders now, with all that refers to them.\n",
		"0":  "\nIt holds at least 10,000 rows of public.orders now, with all that refers to them.\n",
		"-1": "Warning: no row of public.orders has these values now;",
	} {
		code, out, errs := f.run(t, "holds create --reason lawsuit --rows orders.customer="+value)
		if code != 0 || !strings.Contains(out+errs, want) {
			t.Errorf("%s: %d %s %s", value, code, out, errs)
		}
	}
}
