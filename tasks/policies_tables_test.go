package tasks_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// columnType is a type of columns in random tables, with a small pool of values, so that many are equal.
type columnType struct {
	// sql declares a column, and read reads a value for a comparison with one: without a length, precision or domain.
	sql, read string
	values    []string
	// others are values that only policies use, since no column of the type can have them.
	others []string
	// integer, number and date say what the type is; plain types have no comparison.
	integer, number, date, plain bool
}

// Values of several types.
var (
	smallInts = []string{"0", "-1", "1", "2", "3", "7"}
	moments   = []string{
		"2026-03-01 12:00:00+00", "2026-02-27 23:30:00+00", "2025-12-01 00:00:00+00", "2025-12-01 12:00:00+00",
		"2025-03-30 01:30:00+00", "2024-02-29 05:00:00+00", "-infinity", "infinity", "2030-01-01 00:00:00+00",
	}
	words = []string{"", "a", "ab", "abc", "B", "ä", "a'b", `a\`, "$1", "%s", "x\"y", "NULL", " a"}
)

var columnTypes = []columnType{
	{sql: "smallint", read: "int2", values: smallInts, integer: true, number: true},
	{sql: "int", read: "int4", values: smallInts, integer: true, number: true},
	{
		sql:     "bigint",
		read:    "int8",
		values:  append([]string{"9223372036854775807"}, smallInts...),
		integer: true,
		number:  true,
	},
	{sql: `"Odd types"."Whole"`, read: "int4", values: smallInts, others: []string{"-7"}, integer: true, number: true},
	{
		sql:    "numeric(8,2)",
		read:   "numeric",
		values: []string{"0", "1.24", "1.23", "-5", "100"},
		others: []string{"1.239", "1.2"},
		number: true,
	},
	{
		sql:    `"Odd types".price`,
		read:   "numeric",
		values: []string{"0", "1.24", "1.23", "-5"},
		others: []string{"1.239"},
		number: true,
	},
	{sql: "numeric", read: "numeric", values: []string{"0", "1.0", "1.00", "NaN", "1e30"}, number: true},
	{sql: "real", read: "float4", values: []string{"0", "-0", "1.5", "NaN", "Infinity", "0.1"}, number: true},
	{
		sql:    "double precision",
		read:   "float8",
		values: []string{"0", "-0", "1.5", "NaN", "-Infinity", "0.1"},
		number: true,
	},
	{sql: "text", read: "text", values: words},
	{sql: `text COLLATE "C"`, read: "text", values: words},
	{
		sql:    "varchar(3)",
		read:   "varchar",
		values: []string{"", "a", "abc", "B  ", "ä"},
		others: []string{"abcdef", "a "},
	},
	{sql: `"Odd types".short`, read: "varchar", values: []string{"", "a", "abc"}, others: []string{"abcdef"}},
	{sql: "char(3)", read: "bpchar", values: []string{"", "a", "abc", "B"}, others: []string{"abcdef", "a  "}},
	{sql: "boolean", read: "bool", values: []string{"true", "false"}},
	{
		sql:    "date",
		read:   "date",
		values: []string{"2026-03-01", "2025-12-01", "2024-02-29", "infinity", "-infinity"},
		date:   true,
	},
	{sql: "timestamp", read: "timestamp", values: moments, date: true},
	{sql: "timestamp(0)", read: "timestamp", values: moments, others: []string{"2025-12-01 12:00:00.4"}, date: true},
	{sql: "timestamptz", read: "timestamptz", values: moments, date: true},
	{sql: `"Odd types"."When"`, read: "timestamptz", values: moments, date: true},
	{sql: "time", read: "time", values: []string{"00:00", "12:30", "24:00"}},
	{sql: "interval", read: "interval", values: []string{"1 day", "24 hours", "1 mon", "-1 day"}},
	{sql: "uuid", read: "uuid", values: []string{
		"00000000-0000-0000-0000-000000000000", "6f9619ff-8b86-d011-b42d-00c04fc964ff",
		"ffffffff-ffff-ffff-ffff-ffffffffffff",
	}},
	{sql: "inet", read: "inet", values: []string{"10.0.0.1", "10.0.0.1/8", "::1"}},
	{sql: "jsonb", read: "jsonb", values: []string{"{}", `{"a": 1}`, "[1, 2]", "null", `"x"`}},
	{sql: "json", read: "json", values: []string{"{}", `{"a": 1}`, "[1,  2]"}, plain: true},
	{sql: "point", read: "point", values: []string{"(0,0)", "(1,2)"}, plain: true},
	{sql: "bytea", read: "bytea", values: []string{"", `\x00ff`, `\x61`}},
	{sql: "bit(3)", read: "varbit", values: []string{"000", "101"}},
	{sql: `"Odd types"."Mood;"`, read: `"Odd types"."Mood;"`, values: []string{"sad", "It's", "NOW"}},
	{sql: "int[]", read: "int[]", values: []string{"{}", "{1}", "{1,NULL}", "{{1,2},{3,4}}"}},
	{sql: "text[]", read: "text[]", values: []string{"{}", `{"a b"}`, "{a,b}", `{"NULL",NULL}`}},
	{sql: `"Odd types".list`, read: "int[]", values: []string{"{}", "{1}", "{1,2}"}},
}

// typesSQL creates the types of random tables.
const typesSQL = `CREATE SCHEMA IF NOT EXISTS "Odd types";
	CREATE DOMAIN "Odd types"."Whole" AS int CHECK (VALUE > -5);
	CREATE DOMAIN "Odd types".price AS numeric(8,2);
	CREATE DOMAIN "Odd types".short AS varchar(3);
	CREATE DOMAIN "Odd types".zoned AS timestamptz;
	CREATE DOMAIN "Odd types"."When" AS "Odd types".zoned;
	CREATE DOMAIN "Odd types".list AS int[];
	CREATE TYPE "Odd types"."Mood;" AS ENUM ('sad', 'It''s', 'NOW')`

// oddNames are names that need quotes in SQL, or have a meaning in it, or in the code that makes it.
var oddNames = []string{
	"plain",
	"order",
	"Order",
	"select",
	"user",
	"NULL",
	"true",
	`x"y`,
	`"`,
	"a.b",
	"a b",
	" lead",
	"Ünï",
	"日本",
	"100%s",
	"%[1]s",
	"%!d",
	"$1",
	"{now}",
	"{r}",
	"r",
	"n",
	"p",
	"v",
	"q",
	"c0",
	"d0",
	"key",
	"place",
	"name",
	"gone",
	"x'y",
	`back\slash`,
	"tab\tline\n",
	"UPPER",
	"camelCase",
	"x; DROP TABLE plain; --",
	"/* c */",
	"::text",
	"ctid_",
	"oid",
	"()",
	"iDeliveryId",
	"ts",
	"U&\"",
	"E'",
	"-- ",
	"r.id",
	strings.Repeat("ä", 31) + "x",
}

func quoted(parts ...string) string {
	for i, p := range parts {
		parts[i] = `"` + strings.ReplaceAll(p, `"`, `""`) + `"`
	}
	return strings.Join(parts, ".")
}

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

type randomColumn struct {
	columnType
	name string
	// notNull, unique and partitions say that it has no NULL, is in a unique index, and partitions the table.
	notNull, unique, partitions bool
}

type randomTable struct {
	schema, name string
	columns      []randomColumn
	// key is the integer column that identifies a row; may be empty.
	key string
	// constraint is the key's, by how the table is partitioned, and more the statements that follow.
	constraint, by, more string
	relations            []string
	rows                 int
	// large is set if the table has enough blocks for its rows to be found by an index, if the planner wants one.
	large bool
}

func (t *randomTable) quoted() string { return quoted(t.schema, t.name) }

func choose[E any](rng *rand.Rand, list []E) E { return list[rng.IntN(len(list))] }

// column returns a random column for which a function returns true; ok is false if there is none.
func (t *randomTable) column(rng *rand.Rand, is func(c randomColumn) bool) (c randomColumn, ok bool) {
	var found []randomColumn
	for _, c := range t.columns {
		if is(c) {
			found = append(found, c)
		}
	}
	if found == nil {
		return c, false
	}
	return choose(rng, found), true
}

func (t *randomTable) spelling(rng *rand.Rand, name string) string {
	upper := strings.ToUpper(name)
	taken := slices.ContainsFunc(t.columns, func(c randomColumn) bool { return c.name == upper })
	if strings.ToLower(upper) == name && !taken && rng.IntN(3) == 0 {
		return upper
	}
	return name
}

func (t *randomTable) spelled(rng *rand.Rand) string {
	plain := func(name string) bool { return !strings.ContainsAny(name, `".`) }
	switch {
	case !plain(t.schema) || !plain(t.name) || rng.IntN(2) == 0:
		return t.quoted()
	case t.schema == "public" && rng.IntN(2) == 0:
		return t.name
	}
	return t.schema + "." + t.name
}

func newRandomTable(rng *rand.Rand, schema, name string) *randomTable {
	t := &randomTable{schema: schema, name: name, rows: rng.IntN(120)}
	names := slices.Clone(oddNames)
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	add := func(of columnType) {
		t.columns = append(t.columns,
			randomColumn{columnType: of, name: names[len(t.columns)], notNull: rng.IntN(3) == 0})
	}
	var dates, integers []columnType
	for _, of := range columnTypes {
		if of.date {
			dates = append(dates, of)
		}
		if of.integer {
			integers = append(integers, of)
		}
	}
	add(choose(rng, dates))
	add(choose(rng, integers))
	for range 2 + rng.IntN(7) {
		add(choose(rng, columnTypes))
	}
	rng.Shuffle(len(t.columns), func(i, j int) { t.columns[i], t.columns[j] = t.columns[j], t.columns[i] })
	t.addKey(rng, names[len(t.columns):])
	t.divide(rng)
	t.addIndexes(rng)
	return t
}

func (t *randomTable) addKey(rng *rand.Rand, names []string) {
	key := func(i int, sql string) string {
		at := slices.IndexFunc(columnTypes, func(of columnType) bool { return of.sql == sql })
		t.columns = append(t.columns, randomColumn{
			columnType: columnTypes[at], name: names[i], notNull: true, unique: true,
		})
		return names[i]
	}
	switch rng.IntN(7) {
	case 0:
		t.key = key(0, "int")
		t.constraint = "PRIMARY KEY (" + quoted(t.key) + ")"
	case 1:
		t.key = key(0, "bigint")
		t.constraint = "PRIMARY KEY (" + quoted(t.key) + ")"
	case 2:
		t.constraint = "PRIMARY KEY (" + quoted(key(0, "text")) + ")"
	case 3:
		t.constraint = "PRIMARY KEY (" + quoted(key(0, "uuid")) + ")"
	case 4:
		t.constraint = "PRIMARY KEY (" + quoted(key(0, "int")) + ", " + quoted(key(1, "bigint")) + ")"
	case 5:
		t.key = key(0, "int")
		t.constraint = "UNIQUE (" + quoted(t.key) + ")"
	}
}

func (t *randomTable) divide(rng *rand.Rand) {
	part := func(suffix string) string {
		return quoted(t.schema, string([]rune(t.name)[:min(len([]rune(t.name)), 20)])+suffix)
	}
	t.relations = []string{t.quoted()}
	partition := func(by string, of randomColumn, bounds ...string) {
		for i := range t.columns {
			t.columns[i].partitions = t.columns[i].name == of.name
		}
		if t.constraint != "" { // a unique index has the column
			t.constraint = strings.TrimSuffix(t.constraint, ")") + ", " + quoted(of.name) + ")"
			for i := range t.columns {
				t.columns[i].unique = t.columns[i].unique || t.columns[i].name == of.name
				t.columns[i].notNull = t.columns[i].notNull || t.columns[i].name == of.name
			}
		}
		t.by = " PARTITION BY " + by + " (" + quoted(of.name) + ")"
		for i, b := range bounds {
			t.more += fmt.Sprintf("; CREATE TABLE %s PARTITION OF %s %s", part(fmt.Sprint(" part ", i)), t.quoted(), b)
		}
	}
	isPlain := func(c randomColumn) bool { return !c.plain && !c.unique }
	switch of, ok := t.column(rng, isPlain); rng.IntN(7) {
	case 0:
		if of, ok = t.column(rng, func(c randomColumn) bool { return c.date && !c.unique }); ok {
			partition("RANGE", of, "FOR VALUES FROM (MINVALUE) TO ('2025-03-30')",
				"FOR VALUES FROM ('2025-03-30') TO ('2025-12-02')", "DEFAULT")
		}
	case 1:
		if ok && of.sql != "bytea" {
			partition("LIST", of, "FOR VALUES IN ("+literal(of.values[0])+")", "DEFAULT")
		}
	case 2:
		if of.sql != "bit(3)" && ok { // has no hash
			partition("HASH", of, "FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
				"FOR VALUES WITH (MODULUS 2, REMAINDER 1)")
		}
	case 3:
		child := part(" child")
		t.more = fmt.Sprintf("; CREATE TABLE %s (extra text) INHERITS (%s)", child, t.quoted())
		t.relations = append(t.relations, child)
	}
}

func (t *randomTable) addIndexes(rng *rand.Rand) {
	for range rng.IntN(4) {
		var columns []string
		for range 1 + rng.IntN(2) {
			if c, ok := t.column(rng, func(c randomColumn) bool { return !c.plain }); ok {
				columns = append(columns, quoted(c.name))
			}
		}
		t.more += fmt.Sprintf("; CREATE INDEX ON %s (%s)", t.quoted(), strings.Join(columns, ", "))
	}
}

func (t *randomTable) createSQL() string {
	var columns []string
	for _, c := range t.columns {
		null := ""
		if c.notNull {
			null = " NOT NULL"
		}
		columns = append(columns, quoted(c.name)+" "+c.sql+null)
	}
	if t.constraint != "" {
		columns = append(columns, t.constraint)
	}
	storage := t.by
	if t.large {
		storage = " WITH (fillfactor = 10)"
	}
	return fmt.Sprintf("CREATE TABLE %s (%s)%s%s", t.quoted(), strings.Join(columns, ", "), storage, t.more)
}

func (t *randomTable) fill(rng *rand.Rand, b *pgx.Batch) {
	var names []string
	for _, c := range t.columns {
		names = append(names, quoted(c.name))
	}
	for i := range t.rows {
		var values []string
		for _, c := range t.columns {
			value := literal(choose(rng, c.values))
			switch {
			case c.unique && c.read == "uuid":
				value = literal(fmt.Sprintf("00000000-0000-0000-0000-%012x", i))
			case c.unique && !c.partitions: // keys are 0 and negative, too
				value = literal(fmt.Sprint(i - 2))
			case !c.notNull && rng.IntN(5) == 0:
				value = "NULL"
			}
			values = append(values, value)
		}
		b.Queue(fmt.Sprintf(
			"INSERT INTO %s (%s) VALUES (%s)", choose(rng, t.relations), strings.Join(names, ", "),
			strings.Join(values, ", "),
		))
	}
}

func (t *randomTable) multiplySQL() string {
	var names, values []string
	for _, c := range t.columns {
		name := quoted(c.name)
		names = append(names, name)
		switch {
		case c.unique && c.read == "uuid":
			name = "gen_random_uuid()"
		case c.unique && c.read == "text":
			name += " || ' copy ' || copy"
		case c.unique:
			name += " + 1000 * copy"
		}
		values = append(values, name)
	}
	return fmt.Sprintf(
		"INSERT INTO %[1]s (%[2]s) SELECT %[3]s FROM %[1]s, generate_series(1, %[4]d) AS copy; ANALYZE %[1]s",
		t.quoted(), strings.Join(names, ", "), strings.Join(values, ", "), 15_000/max(t.rows, 1))
}
