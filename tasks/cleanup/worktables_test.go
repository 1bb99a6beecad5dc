package cleanup_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

func TestDropStatement(t *testing.T) {
	t.Parallel()
	table := campaign.WorkTable{Schema: "public", Name: `wkf1"_a`}
	view := campaign.WorkTable{Schema: "public", Name: "wkf1_v", View: true}
	if sql, _ := cleanup.DropStatement([]campaign.WorkTable{table}); sql != `DROP TABLE "public"."wkf1""_a"` {
		t.Errorf("got %s", sql)
	}
	if sql, _ := cleanup.DropStatement([]campaign.WorkTable{view}); sql != `DROP VIEW "public"."wkf1_v"` {
		t.Errorf("got %s", sql)
	}
}

// A table on which a view of another kind depends is dropped in the second pass; one that remains blocked is reported.
func TestDropAll(t *testing.T) {
	t.Parallel()
	kind := func(names ...string) (k cleanup.WorkTableKind) {
		for _, name := range names {
			k.Tables = append(k.Tables, campaign.WorkTable{Name: name})
		}
		return k
	}
	needs := map[string]string{"a": "c", "b": "another object"}
	var dropped []string
	drop := func(
		_ context.Context, _ cleanup.WorkTableKind, tables []campaign.WorkTable,
	) (blocked []cleanup.BlockedDrop, err error) {
		for _, w := range tables {
			if need := needs[w.Name]; need != "" && !slices.Contains(dropped, need) {
				blocked = append(blocked, cleanup.BlockedDrop{WorkTable: w, Message: message.Infof("%s", w.Name)})
				continue
			}
			dropped = append(dropped, w.Name)
		}
		return blocked, nil
	}
	messages, err := cleanup.DropAllWorkTables(t.Context(), []cleanup.WorkTableKind{kind("a", "b"), kind("c")}, drop)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(dropped, []string{"c", "a"}) {
		t.Errorf("dropped %v", dropped)
	}
	if message.Join(messages) != "b" {
		t.Errorf("got messages %v", messages)
	}
}

func TestRetainedBy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want purge.Retained
	}{
		"a hold":                  {cleanup.ErrTableOnHold, purge.Retained{OnHold: 1}},
		"a foreign key":           {&pgconn.PgError{Code: "23503"}, purge.Retained{Suppressed: 1}},
		"a foreign relation":      {cleanup.ErrForeignWorkTable, purge.Retained{Suppressed: 1}},
		"a lock":                  {&pgconn.PgError{Code: "55P03"}, purge.Retained{Locked: 1}},
		"a trigger's error":       {&pgconn.PgError{Code: "P0001"}, purge.Retained{Failed: 1}},
		"the loss of the server":  {&pgconn.PgError{Code: "57P01"}, purge.Retained{}},
		"an error of the service": {errors.New("x"), purge.Retained{}},
	} {
		if got := cleanup.RetainedBy(c.err); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
