package campaign_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// The catalog and the work tables can be read although a snapshot still shows dropped tables.
func TestTablesDroppedMeanwhile(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`CREATE TABLE wkf12_1 (i integer);
		CREATE TABLE wkf12_2 (i integer) PARTITION BY LIST (i);
		CREATE TABLE wkf12_2_1 PARTITION OF wkf12_2 DEFAULT;
		CREATE TABLE cuslog (iBroadLogId integer UNIQUE, iGroupId integer)`)
	tx, err := db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
	if _, err := tx.Exec(t.Context(), "SELECT FROM pg_namespace LIMIT 0"); err != nil { // takes the snapshot
		t.Fatal(err)
	}
	db.Do("DROP TABLE wkf12_1, wkf12_2, cuslog")
	c, err := campaign.LoadCatalog(t.Context(), tx, campaign.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Table("wkf12_1") == nil {
		t.Error("the snapshot does not show the dropped table")
	}
	if _, _, err := c.WorkTables(t.Context(), tx, "wkf", false); err != nil {
		t.Error(err)
	}
}
