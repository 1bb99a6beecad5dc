package capacity

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/insight"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func database(t *testing.T) *pgtest.DB {
	t.Helper()
	return pgtest.Prepared(t, "cleanupd", func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, campaigndb.Schema)
		return errors.Join(err, store.Migrate(ctx, conn))
	})
}

func newSampler(db *pgtest.DB, name string) *Sampler {
	log := slog.New(slog.DiscardHandler)
	return &Sampler{Pool: db.Pool, Owner: store.NewOwner(name, log), Log: log}
}

func sample(t *testing.T, db *pgtest.DB) {
	t.Helper()
	db.Do("UPDATE cleanupd.table_sampler SET last_time = last_time - interval '1 day'")
	if err := newSampler(db, "").Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// age makes everything that is stored older by a number of days.
func age(db *pgtest.DB, days int) {
	const far = 100_000 // an UPDATE must not meet the key of a row that it has not reached yet
	for _, shift := range []int{far, days - far} {
		db.Do("UPDATE cleanupd.table_sampling SET time = time - $1::int * interval '1 day'", shift)
		db.Do("UPDATE cleanupd.table_sample SET time = time - $1::int * interval '1 day'", shift)
	}
	db.Do("UPDATE cleanupd.sampled_table SET first_time = first_time - $1::int * interval '1 day', "+
		"drop_time = drop_time - $1::int * interval '1 day'", days)
	db.Do("UPDATE cleanupd.table_sampler SET last_time = last_time - $1::int * interval '1 day'", days)
}

// count executes sql, and waits until the server has counted these inserted and deleted rows of the table.
func count(db *pgtest.DB, sql, table string, inserted, deleted int) {
	db.DoCounted(sql)
	db.Until("SELECT (pg_stat_get_tuples_inserted($1::text::regclass) = $2 "+
		"AND pg_stat_get_tuples_deleted($1::text::regclass) = $3)::int", table, inserted, deleted)
}

func rates(t *testing.T, db *pgtest.DB, name string) Rates {
	t.Helper()
	found, err := insight.Measure(t.Context(), db, masks)
	if err != nil {
		t.Fatal(err)
	}
	grown, err := readGrowth(t.Context(), db, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range found.Tables {
		if table.Name == name {
			return grown.Rates(table)
		}
	}
	t.Fatalf("there is no %s", name)
	return Rates{}
}
