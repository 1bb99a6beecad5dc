package service_test

import (
	"testing"

	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/access"
)

// The page shows growth, the reasons why work tables are retained, and suggestions.
func TestConsoleOfTables(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	db := database(t)
	db.Do(`INSERT INTO XtkWorkflow (iWorkflowId, iState) VALUES (520, 13); CREATE TABLE wkf520_1 (i int);
		CREATE TABLE wkf521_1 (i int);
		CREATE TABLE cusorders AS SELECT i, now() - i * interval '1 day' AS created FROM generate_series(1, 20000) i`)
	db.Do("VACUUM ANALYZE cusorders, wkf520_1")
	db.Do(`INSERT INTO cleanupd.table_sampling SELECT now() - i * interval '1 day' FROM generate_series(1, 10) i;
		INSERT INTO cleanupd.sampled_table (name, first_time) VALUES ('public.cusorders', now() - interval '10 days');
		INSERT INTO cleanupd.table_sample (table_id, time, rows, bytes, index_bytes)
			SELECT id, now() - i * interval '1 day', 1000 * (10 - i), 8192 * (10 - i), 0
				FROM generate_series(1, 9) i, cleanupd.sampled_table`)
	s := serveAs(t, db, true, nil, console(t, access.Config{}))
	s.tables.Limits.Bytes = 100_000
	p := browse(t, s.url+"/#/tables")
	p.sees("public.cusorders", "KiB")
	p.until("it draws the growth", "document.querySelectorAll('.spark path').length === 1")
	p.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true })")
	p.sees("created < now - 365 d")
	p.fill("Order", "NAME")
	p.until("it is in the order of names",
		"document.querySelector('tbody code').innerText === 'public.cusbroadlogstore'")
	p.press("Show more")
	p.until("it shows the next page", "document.querySelectorAll('tbody tr').length > 50")
	p.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true })")
	p.sees("public.wkf%", "workflow 520 is paused", "2 tables, 1 unused")
	p.press("Only tables that no task covers")
	p.until("it shows the others", "!document.body.innerText.includes('nmsvisitor')")
	p.sees("public.cusorders", "no task")
	p.evaluate("document.querySelector('a[href=\"#/policies//public.cusorders\"]').click()")
	p.sees("Create a policy")
	for label, want := range map[string]string{
		"Table": "public.cusorders", "Date column": "created", "Older than": "365", "Unit": "days", "Name": "cusorders",
	} {
		p.shows(label, want)
	}
}
