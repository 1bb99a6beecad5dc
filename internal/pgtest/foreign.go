package pgtest

import (
	"fmt"
	"os"
	"strings"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
)

// Far returns another, empty database of the server, which postgres_fdw reaches as the server far.
func (db *DB) Far() *DB {
	db.t.Helper()
	far := *db
	far.Name = fmt.Sprintf("test_%d_%d_far", os.Getpid(), sequence.Add(1))
	db.superuser("postgres", fmt.Sprintf("CREATE DATABASE %s OWNER %s", far.Name, campaigndb.Role))
	db.t.Cleanup(func() { db.superuser("postgres", "DROP DATABASE "+far.Name+" WITH (FORCE)") })
	far.open(far.URL())
	db.Server("far", &far)
	return &far
}

// Server creates a server of postgres_fdw.
func (db *DB) Server(name string, other *DB) {
	db.t.Helper()
	config := other.Config().ConnConfig
	db.Superuser(
		fmt.Sprintf(
			`CREATE EXTENSION IF NOT EXISTS postgres_fdw;
			CREATE SERVER %[1]s FOREIGN DATA WRAPPER postgres_fdw
				OPTIONS (host '%[2]s', port '%[3]d', dbname '%[4]s');
			GRANT USAGE ON FOREIGN SERVER %[1]s TO %[5]s;
			CREATE USER MAPPING FOR %[5]s SERVER %[1]s OPTIONS (user '%[5]s', password_required 'false')`,
			name, config.Host, config.Port, other.Name, campaigndb.Role,
		),
	)
}

// MoveAway moves the table to the other database, and puts a foreign table in its place.
func (db *DB) MoveAway(far *DB, table string) {
	db.t.Helper()
	far.Do(db.definition(table))
	db.Do(
		"ALTER TABLE " + table + " RENAME TO moving; IMPORT FOREIGN SCHEMA public LIMIT TO (" + table + ") FROM SERVER far " +
			"INTO public",
	)
	db.Do("INSERT INTO " + table + " SELECT * FROM moving; DROP TABLE moving")
}

// definition returns the statement that creates a table with the same columns and unique indexes.
func (db *DB) definition(table string) string {
	db.t.Helper()
	return strings.Join(
		db.Strings(
			`SELECT format('CREATE TABLE %I (%s)', c.relname, string_agg(format('%I %s %s %s', a.attname,
				format_type(a.atttypid, a.atttypmod),
		CASE WHEN a.attnotnull THEN 'NOT NULL' END, 'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid)), ', '
			ORDER BY a.attnum))
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped LEFT
			JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
		WHERE c.oid = $1::text::regclass GROUP BY c.relname
		UNION ALL SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = $1::text::regclass`,
			strings.ToLower(table),
		),
		";",
	)
}

// PartitionAway partitions a table: rows whose key is below the bound are in a foreign partition in the other
// database, the others in a local partition.
func (db *DB) PartitionAway(far *DB, table, key string, bound int) {
	db.t.Helper()
	far.Do(db.definition(table))
	db.Do(
		fmt.Sprintf(
			`ALTER TABLE %[1]s RENAME TO %[1]s_here;
				CREATE TABLE %[1]s (LIKE %[1]s_here INCLUDING DEFAULTS) PARTITION BY RANGE (%[2]s);
		CREATE FOREIGN TABLE %[1]s_far PARTITION OF %[1]s FOR VALUES
			FROM (MINVALUE) TO (%[3]d) SERVER far OPTIONS (table_name '%[1]s');
		INSERT INTO %[1]s SELECT * FROM %[1]s_here WHERE %[2]s < %[3]d; DELETE FROM %[1]s_here WHERE %[2]s < %[3]d;
		ALTER TABLE %[1]s ATTACH PARTITION %[1]s_here FOR VALUES FROM (%[3]d) TO (MAXVALUE)`,
			table, key, bound,
		),
	)
}
