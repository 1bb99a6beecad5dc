package userdata_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/userdata"
)

// The client panics for some process instances, and purges the others.
type panickingServer struct {
	lossyServer
	over string // the last invocation for which it does not panic
}

func (s panickingServer) PurgeProcessInstance(ctx context.Context, invocation string) error {
	if invocation > s.over {
		panic("PLANTED")
	}
	return s.lossyServer.PurgeProcessInstance(ctx, invocation)
}

// An erasure that panics fails, reports it, and is not resumed; the next one is carried out. The log has the stack.
func TestErasureThatPanics(t *testing.T) {
	t.Parallel()
	f := bareForms(t)
	f.db.Do(
		"INSERT INTO tb_process_instance VALUES (1, 'a', 2), (2, 'b', 2), (3, 'c', 2); INSERT INTO tb_task VALUES " +
			"(7, 1, 'P0', 0)",
	)
	f.config.Server = panickingServer{lossyServer{f.record}, "a"}
	f.Manager = userdata.New(f.config)
	var log bytes.Buffer
	stop := f.workAnd(slog.New(slog.NewTextHandler(&log, nil)))
	events, receipt := f.erase(userdata.Request{Instances: []int64{1, 2, 3}})
	if receipt.Succeeded || receipt.EndTime == nil || len(receipt.Problems) != 1 ||
		!strings.Contains(receipt.Problems[0], "ended early") ||
		strings.Contains(receipt.Problems[0], "PLANTED") ||
		events[0].Instance == nil {
		t.Errorf("%+v", receipt)
	}
	if states := f.record.Strings("SELECT state FROM cleanupd.erasure_item ORDER BY item_id"); !slices.Equal(
		states, []string{"DONE", "FAILED", "FAILED"},
	) {
		t.Errorf("its items are %v", states)
	}
	if _, receipt := f.erase(userdata.Request{Tasks: []int64{7}}); !receipt.Succeeded || receipt.Rows["tb_task"] != 1 {
		t.Errorf("the next one: %+v", receipt)
	}
	stop()
	if strings.Count(log.String(), "panic=PLANTED") != 1 ||
		!strings.Contains(log.String(), "panickingServer.PurgeProcessInstance") {
		t.Errorf("logged: %s", log.String())
	}
}

// Panics once when a certain statement is sent.
type panicOnce struct {
	on   string // a part of the statement
	done bool
}

func (s *panicOnce) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !s.done && strings.Contains(strings.Join(strings.Fields(data.SQL), " "), s.on) {
		s.done = true
		panic("PLANTED")
	}
	return ctx
}

func (s *panicOnce) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A panic in an erasure's transaction rolls it back; a panic elsewhere does not stop the replica.
func TestPanicsInTransactions(t *testing.T) {
	t.Parallel()
	for on, ok := range map[string]bool{
		"SET end_time":                  false,
		"SELECT pg_try_advisory_lock":   false,
		"SELECT pg_advisory_unlock_all": true,
	} {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			f := bareForms(t)
			f.db.Do("INSERT INTO tb_task VALUES (1, 1, 'P0', 0)")
			config, err := pgxpool.ParseConfig(f.record.URL())
			if err != nil {
				t.Fatal(err)
			}
			config.ConnConfig.Tracer = &panicOnce{on: on}
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			id, err := f.Start(t.Context(), userdata.Request{Tasks: []int64{1}})
			if err != nil {
				t.Fatal(err)
			}
			(&fixture{Manager: onPools(t, f.config, pool, f.record.For(campaigndb.Role).Pool), t: t}).work()
			_, receipt := f.watch(id)
			if receipt.Succeeded != ok {
				t.Errorf("%+v", receipt)
			}
		})
	}
}
