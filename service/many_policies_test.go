package service_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/suite"
)

// counting is a tracer that counts queries.
type counting struct{ atomic.Int64 }

// TraceQueryStart implements pgx.QueryTracer.
func (c *counting) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*counting) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// With the maximum number of policies, calls answer without a query for each policy. Only a forecast counts the rows of
// each.
func TestTwoThousandPolicies(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	const policies = 2_000
	db := database(t)
	db.Do(`DO $$ BEGIN FOR i IN 1..100 LOOP
			EXECUTE format('CREATE TABLE many%s (id bigint PRIMARY KEY, at timestamptz)', i);
			EXECUTE format('INSERT INTO many%s VALUES (1, now() - interval ''1 year'')', i); END LOOP; END $$`)
	config, err := pgxpool.ParseConfig(db.URL() + "&jit=off") // as in flags.DatabaseURL
	if err != nil {
		t.Fatal(err)
	}
	queries := &counting{}
	config.ConnConfig.Tracer = queries
	if db.Pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	s := serve(t, db, false)
	setPolicy(t, s, &cleanupv1.Policy{
		Name: "m1", Table: "many1", Enabled: true, OlderThan: olderThan("at", 30),
	})
	db.Do(`INSERT INTO cleanupd.policy (name, rule, relations)
		SELECT 'm' || i, jsonb_set(jsonb_set(rule, '{name}', to_jsonb('m' || i)), '{table}', to_jsonb(tab)),
			jsonb_set(relations, '{0,name}', to_jsonb(tab))
		FROM cleanupd.policy, generate_series(2, $1) i, LATERAL (SELECT 'many' || 1 + i % 100 AS tab) AS of`, policies)
	db.Do("ANALYZE")

	few := func(name string, do func() error) {
		t.Helper()
		before := queries.Load()
		if err := do(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := queries.Load() - before; n > 1_000 {
			t.Errorf("%s takes %d queries for %d policies", name, n, policies)
		}
	}
	listed := 0
	few("ListPolicies", func() error {
		for token := ""; ; {
			page, err := s.ListPolicies(t.Context(), &cleanupv1.ListPoliciesRequest{PageToken: token})
			listed += len(page.GetPolicies())
			if token = page.GetNextPageToken(); err != nil || token == "" {
				return err
			}
		}
	})
	if listed != policies {
		t.Errorf("%d policies are listed", listed)
	}
	few("ListTasks", func() error {
		_, err := s.ListTasks(t.Context(), &cleanupv1.ListTasksRequest{})
		return err
	})
	few("GetPolicy", func() error {
		_, err := s.GetPolicy(t.Context(), &cleanupv1.GetPolicyRequest{Name: "m7"})
		return err
	})
	few("SetPolicy", func() error {
		_, err := s.SetPolicy(t.Context(), &cleanupv1.SetPolicyRequest{ValidateOnly: true, Policy: &cleanupv1.Policy{
			Name: "m7", Table: "many8", Enabled: true, OlderThan: olderThan("at", 31),
		}})
		return err
	})
	few("ListTables", func() error {
		tables, err := s.ListTables(t.Context(), &cleanupv1.ListTablesRequest{PageSize: 1_000})
		for _, table := range tables.GetTables() {
			if table.GetName() == "public.many8" && len(table.GetCoveredBy()) != policies/100 {
				t.Errorf("%v", table)
			}
		}
		return err
	})
	few("a dry run of one policy", func() error {
		_, run, err := s.run(t, &cleanupv1.RunCleanupRequest{DryRun: true, Tasks: []string{"policy/m7"}})
		if n := run.GetResults()[slices.IndexFunc(run.GetResults(), func(r *cleanupv1.TaskResult) bool {
			return r.GetTask() == "policy/m7"
		})].GetRowsDeleted(); n != 1 {
			t.Errorf("the dry run found %d rows", n)
		}
		return err
	})
	f, err := s.GetForecast(t.Context(), &cleanupv1.GetForecastRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range f.GetTasks() {
		if (task.GetProblem() == "") == (task.DueNow == nil) {
			t.Errorf("%v", task)
		}
	}
	if n := len(f.GetTasks()); n < policies {
		t.Errorf("the forecast has %d tasks", n)
	}
}
