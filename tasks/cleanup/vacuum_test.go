package cleanup_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
)

func TestCommand(t *testing.T) {
	t.Parallel()
	catalog := &campaign.Catalog{Version: 150_000, Locations: map[uint32]string{2: campaign.Distributed}}
	newer := &campaign.Catalog{Version: 180_000}
	table, parent, distributed := cleanup.Storage{OID: 1}, cleanup.Storage{OID: 1, Parent: true}, cleanup.Storage{OID: 2}
	for want, c := range map[string]struct {
		commands cleanup.VacuumCommander
		storage  cleanup.Storage
	}{
		"VACUUM (VERBOSE, ANALYZE, SKIP_LOCKED, TRUNCATE false)": {cleanup.VacuumCommander{Catalog: catalog}, table},
		"VACUUM (VERBOSE, ANALYZE, SKIP_LOCKED)": {
			cleanup.VacuumCommander{Catalog: catalog, Truncate: true}, table,
		},
		"ANALYZE (VERBOSE, SKIP_LOCKED)":      {cleanup.VacuumCommander{Catalog: catalog}, parent},
		"ANALYZE (VERBOSE, SKIP_LOCKED) ONLY": {cleanup.VacuumCommander{Catalog: newer}, parent},
		"ANALYZE (VERBOSE)": {
			cleanup.VacuumCommander{Catalog: catalog, Mode: campaign.AnalyzeOnly},
			distributed,
		},
	} {
		if got := c.commands.Command(c.storage); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Output has one line a table, and one message for many tables.
func TestOutput(t *testing.T) {
	t.Parallel()
	o := cleanup.NewVacuumOutput()
	o.Start(cleanup.Storage{Schema: "public", Name: "u"})
	for _, n := range []pgconn.Notice{
		{Severity: "INFO", Routine: "heap_vacuum_rel", Message: `vacuuming "a.public.t"`},
		{Severity: "INFO", Routine: "heap_vacuum_rel", Message: `vacuuming "a.pg_toast.pg_toast_1"`},
		{Severity: "INFO", Routine: "heap_vacuum_rel", Message: "finished vacuuming\npages: 1"},
		{Severity: "INFO", Routine: "do_analyze_rel", Message: `analyzing "public.t"`},
		{Severity: "INFO", Routine: "lazy_scan_heap", Message: `vacuuming "public.u"`},
		{Severity: "INFO", Routine: "lazy_scan_heap", Message: `"u": found 0 removable row versions in 0 out of 0 pages`},
		{Severity: "INFO", Routine: "lazy_scan_heap", Message: `vacuuming "pg_toast.pg_toast_1"`},
		{Severity: "INFO", Routine: "another", Message: "x"},
	} {
		o.Add(&n)
	}
	messages := o.Flush()
	if len(messages) != 1 ||
		messages[0] != "INFO:  vacuuming \"a.public.t\"\nINFO:  analyzing \"public.t\"\nINFO:  vacuuming \"public.u\"" {
		t.Errorf("got %q", messages)
	}
	if again := o.Flush(); again != nil {
		t.Errorf("flushed again: %q", again)
	}
}
