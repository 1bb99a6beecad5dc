package policy_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// No text of a policy becomes SQL: values are parameters, and names are quoted as the catalog has them. A name that the
// catalog does not have is refused, and checking a policy changes nothing.
func FuzzPolicy(f *testing.F) {
	for i, text := range []string{
		"plain", "Upper", "select", `x"; DROP TABLE victim; --`, `"`, `""`, `a.b`, `a"."b`, "a b", "'", `\`, "$1", "$$",
		"%s", "%[1]d", "?", "{now}", "ä", "日本", "\n", "\t", "--", "/*", "*/", "()", "::text", "1", "r", "n", "p", "v",
		"ctid", "NULL", "now", "x) OR (true", "E'", "U&\"", "\u00a0", "\u202e", "İ", "ſ", strings.Repeat("x", 62),
		strings.Repeat("ä", 40),
	} {
		f.Add(text, text, text, text, uint16(i*0x91+7))
	}
	f.Add("table", "at", "value", "parent", uint16(7))
	db := pgtest.Empty(f)
	db.Do(`CREATE SCHEMA "fuzz ""q"; CREATE TABLE victim (id int); INSERT INTO victim VALUES (1)`)
	f.Fuzz(func(t *testing.T, table, column, value, parent string, shape uint16) {
		z := &fuzzed{table: table, column: column, parent: parent, value: value, shape: shape}
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		before := catalogOf(t, tx)
		z.checkRefused(t, tx, before)
		if z.create(t.Context(), tx) {
			z.checkQuoted(t, tx)
		}
	})
}

type fuzzed struct {
	table, column, value, parent string
	shape                        uint16
}

const fuzzSchema = `fuzz "q`

func (z *fuzzed) has(bit int) bool { return z.shape>>bit&1 == 1 }

func (z *fuzzed) columns() []string { return []string{z.column, z.column + "s", "k" + z.column} }

func (z *fuzzed) policy(table, parent string) policy.Policy {
	names := z.columns()
	p := policy.Policy{
		Name: "fuzz", Table: table, Description: z.value, Enabled: true,
		OlderThan: &policy.OlderThan{Column: names[0], Days: new(1 + int(z.shape)%1000)},
	}
	ops := []string{
		"EQUAL", "NOT_EQUAL", "LESS", "LESS_OR_EQUAL", "GREATER", "GREATER_OR_EQUAL", "IN", "NOT_IN", "STARTS_WITH",
	}
	p.Filters = append(p.Filters, policy.Filter{
		Column: names[1], Op: ops[int(z.shape>>4)%len(ops)], Values: []string{z.value},
	})
	if z.has(0) {
		p.OrphanOf = &policy.OrphanOf{Column: names[2], ParentTable: parent, ParentColumn: names[2]}
	}
	if z.has(1) {
		p.KeepNewest = &policy.KeepNewest{Per: []string{names[2], names[0]}, Count: 1 + int(z.shape)%5}
	}
	if z.has(2) {
		p.Assign = []policy.Assign{{Column: names[1], Value: &z.value}}
	}
	return p
}

func quoted(name string) string { return pgx.Identifier{fuzzSchema, name}.Sanitize() }

// create creates the tables. It returns false if PostgreSQL cannot have such names.
func (z *fuzzed) create(ctx context.Context, tx pgx.Tx) bool {
	for _, name := range append(z.columns(), z.table, z.parent) {
		if name == "" || len(name) > 63 || strings.ContainsRune(name, 0) {
			return false
		}
	}
	names := z.columns()
	columns := fmt.Sprintf("%s timestamptz, %s text, %s bigint", pgx.Identifier{names[0]}.Sanitize(),
		pgx.Identifier{names[1]}.Sanitize(), pgx.Identifier{names[2]}.Sanitize())
	return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		for _, name := range slices.Compact([]string{z.table, z.parent}) {
			if _, err := tx.Exec(ctx, "CREATE TABLE "+quoted(name)+" ("+columns+")"); err != nil {
				return err
			}
			if _, err := tx.Exec(
				ctx, "INSERT INTO "+quoted(name)+" VALUES ('2000-01-01', 'x', 1), (now(), 'x', 1)",
			); err != nil {
				return err
			}
		}
		return nil
	}) == nil
}

func catalogOf(t *testing.T, tx pgx.Tx) (digest string) {
	t.Helper()
	if err := tx.QueryRow(t.Context(), `SELECT md5(concat((SELECT string_agg(c::text, ',' ORDER BY
			c.oid) FROM pg_class c
		WHERE c.relnamespace::regnamespace::text NOT LIKE 'pg_%'), (SELECT string_agg(a::text, ',' ORDER
			BY attrelid, attnum)
		FROM pg_attribute a WHERE attrelid >= 16384), (SELECT string_agg(v::text, ',') FROM victim v)))`).
		Scan(&digest); err != nil {
		t.Fatal(err)
	}
	return digest
}

func envOf(t *testing.T, tx pgx.Tx, p policy.Policy) (env rules.Env) {
	t.Helper()
	env = rules.Env{Now: time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC), Pipeline: []rules.Task{p.Task()}}
	var err error
	if env.Catalog, err = campaign.LoadCatalog(
		t.Context(), tx, campaign.Scope{NoCampaign: true, Named: p.Task().Names},
	); err != nil {
		t.Fatalf("%+v: %v", p, err)
	}
	if env.Options, err = campaign.ReadOptions(t.Context(), tx, env.Catalog); err != nil {
		t.Fatal(err)
	}
	return env
}

// checkRefused checks that a policy with the texts as they are, whose tables do not exist, is refused, and that nothing
// has changed.
func (z *fuzzed) checkRefused(t *testing.T, tx pgx.Tx, before string) {
	t.Helper()
	for _, p := range []policy.Policy{z.policy(z.table, z.parent), z.policy("victim", z.parent)} {
		err := p.Validate()
		if err == nil {
			err = p.Check(t.Context(), tx, envOf(t, tx, p))
		}
		if wrong := failure.Violations(nil); !errors.As(err, &wrong) || strings.Contains(err.Error(), "42601") {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if after := catalogOf(t, tx); after != before {
		t.Errorf("%+v has changed the database", z)
	}
}

// checkQuoted checks a policy whose tables exist. All words of its SQL outside double quotes are known.
func (z *fuzzed) checkQuoted(t *testing.T, tx pgx.Tx) {
	t.Helper()
	p := z.policy(quoted(z.table), quoted(z.parent))
	if err := p.Validate(); err != nil { // a text that no database can store
		return
	}
	env := envOf(t, tx, p)
	if err := p.Check(t.Context(), tx, env); err != nil {
		t.Errorf("%+v: %v", p, err)
		return
	}
	compiled, err := rules.Compile(p.Task(), env)
	if err != nil || len(compiled.Jobs) != 1 {
		t.Fatalf("%+v: %v, %v", p, compiled, err)
	}
	sql, args := compiled.Jobs[0].SQL().Build()
	types, collation := []string{"char", "timestamp"}, "C" // of starts_with
	known := slices.Concat(z.columns(), types, []string{z.table, z.parent, fuzzSchema, collation})
	for _, name := range quotedName.FindAllString(sql, -1) {
		stored := strings.ReplaceAll(name[1:len(name)-1], `""`, `"`)
		if !slices.Contains(known, stored) {
			t.Errorf("%s is no name of the catalog in %s", name, sql)
		}
	}
	for _, word := range strings.Fields(between.ReplaceAllString(quotedName.ReplaceAllString(sql, " "), " ")) {
		if !slices.Contains(ruleWords, word) {
			t.Errorf("%q is no word of a rule in %s of %+v", word, sql, p)
		}
	}
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Errorf("%s of %+v: %v", sql, p, err)
	}
}

var (
	quotedName = regexp.MustCompile(`"(?:[^"]|"")*"`)
	between    = regexp.MustCompile(`[().,<>=:\[\]]+|\$\d+|\b\d+\b`)
	ruleWords  = strings.Fields(
		`DELETE UPDATE SET FROM ONLY AS WHERE AND OR NOT IN IS NULL TRUE CASE WHEN THEN END SELECT
		DISTINCT EXISTS ORDER BY DESC OFFSET LIMIT PARTITION OVER rank place ANY OPERATOR COLLATE starts_with
			tableoid ctid r n p s
		pg_catalog text int8 timestamptz bigint`,
	)
)
