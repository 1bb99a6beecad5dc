package campaigndb_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestNewTablesLeaveTheRowsOfOthers(t *testing.T) {
	t.Parallel()
	db, now := pgtest.Campaign(t), time.Now()
	generate := func() []*campaigndb.Table {
		conn, err := db.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		d, err := campaigndb.Generate(t.Context(), conn.Conn(), 1_000, 1, now)
		if err != nil {
			t.Fatal(err)
		}
		return d.Tables
	}
	before := generate()
	db.Do("CREATE TABLE CusSecond (iSecondId int PRIMARY KEY, tsEvent timestamptz); CREATE TABLE CusFirst (tsEvent date)")
	after := generate()
	if added := len(after) - len(before); added != 2 {
		t.Fatalf("%d tables were added", added)
	}
	if diff := cmp.Diff(before, after[:len(before)]); diff != "" {
		t.Error(diff)
	}
}
