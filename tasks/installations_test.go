package tasks_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// installations are differences between installations and schema.sql, and how many installations have each.
var installations = []struct {
	oneIn  int
	change func(db *pgtest.DB)
}{
	{4, func(db *pgtest.DB) { db.Do("ALTER TABLE NmsGroup DROP tsExpirationDate") }},
	{6, func(db *pgtest.DB) { db.Do("DROP INDEX NmsRemaMatchRcp_id") }},
	{6, version6},
	{6, fromStandard},
	{4, primaryKeys},
	{6, wideIDs},
}

func version6(db *pgtest.DB) {
	db.Do(`DROP TABLE XtkAudit, XtkSessionInfo, NmsDeliveryLogStats, NmsMobileApp, NmsAppSubscriptionRcp;
		ALTER TABLE NmsGroup DROP IF EXISTS tsExpirationDate; ALTER TABLE NmsPropositionRcp DROP iDeliveryId;
			ALTER TABLE NmsPropositionVisitor DROP iDeliveryId`)
}

func primaryKeys(db *pgtest.DB) {
	for _, alter := range db.Strings(`SELECT format('ALTER TABLE %s ADD PRIMARY KEY USING INDEX %I', t.oid::regclass,
		c.relname) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
		WHERE t.relnamespace = 'public'::regnamespace AND i.indisunique AND c.relname = t.relname || '_id'`) {
		db.Do(alter)
	}
}

// wideIDs makes all ids 64 bits wide.
func wideIDs(db *pgtest.DB) {
	for _, alter := range db.Strings(`SELECT format('ALTER TABLE %s %s', attrelid::regclass,
		string_agg(format('ALTER COLUMN %I TYPE bigint', attname), ', ')) FROM pg_attribute
		JOIN pg_class c ON c.oid = attrelid WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
			AND atttypid = 'integer'::regtype AND attname LIKE '%id' GROUP BY attrelid`) {
		db.Do(alter)
	}
}

// fromStandard gives propositions the 64-bit keys of a database that was migrated from Campaign Standard.
func fromStandard(db *pgtest.DB) {
	db.Do(
		`ALTER TABLE NmsPropositionRcp RENAME iPropositionId TO biPropositionId;
			ALTER TABLE NmsPropositionRcp ALTER biPropositionId TYPE bigint`,
	)
}

// withoutZone removes the time zone from all date columns, as in an old installation.
func withoutZone(db *pgtest.DB) {
	for _, alter := range db.Strings(`SELECT format('ALTER TABLE %s %s', attrelid::regclass,
		string_agg(format('ALTER COLUMN %I TYPE timestamp', attname), ', ')) FROM pg_attribute
		JOIN pg_class c ON c.oid = attrelid WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
			AND atttypid = 'timestamptz'::regtype GROUP BY attrelid`) {
		db.Do(alter)
	}
}

type reference struct {
	table, column, parent, key string
	cascade                    bool
}

// references are foreign keys that installations may have: to lists by iGroupId, with rows that are deleted with their
// list; to lists by another column, which retains the list; and to deliveries.
var references = []reference{
	{"CusListNote", "iGroupId", "NmsGroup", "iGroupId", false},
	{"CusListOwner", "iOwnedList", "NmsGroup", "iGroupId", false},
	{"CusDeliveryNote", "iDeliveryId", "NmsDelivery", "iDeliveryId", true},
}

func someReferences(rng *rand.Rand, db *pgtest.DB) (some []reference) {
	for _, f := range references {
		if rng.IntN(4) == 0 {
			db.Do(
				fmt.Sprintf(
					"CREATE TABLE %[1]s (iNoteId integer NOT NULL DEFAULT 0, %[2]s integer NOT NULL DEFAULT 0); "+
						"CREATE UNIQUE INDEX %[1]s_id ON %[1]s (iNoteId)",
					f.table,
					f.column,
				),
			)
			some = append(some, f)
		}
	}
	return some
}

func (f reference) satisfy(m *model) {
	there, t := m.ids(f.parent, f.key), m.db.Table(f.table)
	t.Rows = slices.DeleteFunc(t.Rows, func(row campaigndb.Row) bool { return !there[rec{t, row}.int(f.column)] })
}

func (f reference) add(db *pgtest.DB) {
	action := ""
	if f.cascade {
		action = " ON DELETE CASCADE"
	}
	db.Do(fmt.Sprintf(
		"ALTER TABLE %s ADD FOREIGN KEY (%s) REFERENCES %s (%s)%s", f.table, f.column, f.parent, f.key, action,
	))
}
