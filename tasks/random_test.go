package tasks_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/connection"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/tasks"
	"github.com/cleanupd/cleanupd/tasks/cleanup"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var (
	seeds = flag.Int("seeds", suite.Size(suite.Model, 2, 5),
		"how many random databases TestRandomDatabases makes; a third of it with logs elsewhere, in each of some ways")
	firstSeed = flag.Uint64("first-seed", 1, "the seed of the first of them")
)

// seeded runs a test for n seeds, beginning with first. Tests with different streams get different random numbers.
func seeded(t *testing.T, first uint64, n int, stream uint64, do func(t *testing.T, rng *rand.Rand, seed uint64)) {
	for i := range n {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			do(t, rand.New(rand.NewPCG(seed, stream)), seed)
		})
	}
}

// A run on a random database changes the same rows of each table as the model does. A second run changes nothing.
func TestRandomDatabases(t *testing.T) {
	t.Parallel()
	seeded(t, *firstSeed, *seeds, 2, func(t *testing.T, rng *rand.Rand, seed uint64) {
		db := pgtest.Campaign(t)
		if rng.IntN(8) == 0 {
			db = pgtest.Encoded(t, "LATIN1")
		}
		m := randomDatabase(t, db, seed, now)
		addHistory(rng, db, m)
		limit := []int{0, 7, 100}[rng.IntN(3)]
		original := m.keys()
		m.run()
		want := m.contents(original)
		if seed%3 == 0 {
			compareWhatIf(t, db)
		}
		dryRun := newJournal(db)
		if err := runWith(t, dryRun, dry); err != nil {
			t.Fatal(err)
		}
		for _, which := range []string{"first", "second"} {
			j := newJournal(db)
			if which == "first" && rng.IntN(2) == 0 { // the worker dies, and another one continues
				j.loseAt, j.after = 1+rng.IntN(60), rng.IntN(2) == 0
			}
			var planned map[string]cleanup.SavedTask
			if which == "first" && seed%2 == 0 {
				planned = dryRun.planned
			}
			err := runWith(t, j, func(c *cleanup.Config) { c.Settings.MaxRows, c.SavedPlan = limit, planned })
			if errors.Is(err, cleanup.ErrLost) {
				j.loseAt = 0
				err = runWith(t, j, func(c *cleanup.Config) {
					resume(c, j)
					c.Settings.MaxRows, c.SavedPlan = limit, planned
				})
			}
			if err != nil {
				t.Fatal(err)
			}
			for task, state := range j.states {
				if state != cleanup.Succeeded && state != cleanup.Skipped {
					t.Errorf("task %s is %s: %s", task, state, j.problems[task])
				}
			}
			if which == "first" {
				compareDryRun(t, dryRun, j)
			}
			compare(t, which, contents(t, db, m, original), want)
			compare(t, which, recordedRemotes(db), m.recorded)
			var sum [4]int64
			var cascaded int64
			for _, d := range j.batches {
				cascaded += d.Cascaded
				sum[0], sum[1] = sum[0]+d.Deleted, sum[1]+d.Updated
				if d.Cursor.Unit == "" { // otherwise it is a partition, which the model does not have
					sum[2] += d.Dropped
				}
				for _, s := range d.Space {
					sum[3] += s.Rows
				}
			}
			if want := [4]int64{
				m.deleted,
				m.updated,
				m.dropped,
				m.deleted + cascaded,
			}; which == "first" &&
				sum != want {
				t.Errorf("deleted, updated, dropped, and deleted by table: %d, want %d", sum, want)
			}
			if which == "first" && j.recorded != int64(len(m.recorded)) {
				t.Errorf("%d remote deliveries were counted as recorded, want %d", j.recorded, len(m.recorded))
			}
		}
	})
}

func compareDryRun(t *testing.T, dryRun, done *journal) {
	t.Helper()
	for _, what := range tasks.Pipeline {
		name := what.Name
		if done.retained["lists-to-delete"].Suppressed > 0 &&
			slices.Contains([]string{"lists-to-delete", "workflow-instances", "orphan-work-tables"}, name) {
			continue // a foreign key retained a list, which a dry run cannot know
		}
		got := [3]int64{dryRun.deleted[name], dryRun.updated[name], dryRun.cascaded[name]}
		if want := [3]int64{done.deleted[name], done.updated[name], done.cascaded[name]}; got != want {
			t.Errorf("%s: the dry run counted %d deleted, updated and cascaded, the run %d", name, got, want)
		}
		var sums [4]int64
		for _, p := range dryRun.previews[name] {
			sums[0] += p.Tables
			switch p.Action {
			case cleanup.ActionDelete:
				sums[1], sums[3] = sums[1]+p.Rows-p.Cascaded, sums[3]+p.Cascaded
			case cleanup.ActionUpdate:
				sums[2] += p.Rows
			}
		}
		if [3]int64{sums[0] + sums[1], sums[2], sums[3]} != got {
			t.Errorf("%s: the preview has %d tables, deleted, updated and cascaded rows; the dry run counted %d", name,
				sums, got)
		}
	}
}

// compareWhatIf compares a dry run with assumed options with a dry run after they are stored, and restores the
// options.
func compareWhatIf(t *testing.T, db *pgtest.DB) {
	t.Helper()
	dryRun := func(whatIf map[string]int) *journal {
		j := newJournal(db)
		if err := runWith(t, j, func(c *cleanup.Config) { c.DryRun, c.WhatIf = true, whatIf }); err != nil {
			t.Fatal(err)
		}
		return j
	}
	now := dryRun(nil)
	values := map[string]int{
		"NmsCleanup_BroadLogPurgeDelay":         20,
		"NmsCleanup_RecycledDeliveryPurgeDelay": 40,
		"NmsCleanup_TrackingLogPurgeDelay":      500,
	}
	supposed := dryRun(values)
	db.Do("CREATE TABLE before AS SELECT * FROM XtkOption")
	stores := db.Int(
		"SELECT count(*) FROM pg_attribute WHERE attrelid = 'xtkoption'::regclass AND attname IN ('sname', "+
			"'ilongvalue', 'idatatype')",
	) == 3
	for name, days := range values {
		if stores {
			db.Do("DELETE FROM XtkOption WHERE sName = $1", name)
			db.Do(
				"INSERT INTO XtkOption (iOptionId, sName, iLongValue, iDataType) SELECT COALESCE(max(iOptionId), 0) "+
					"+ 1, $1, $2, 3 FROM XtkOption",
				name,
				days*86_400,
			)
		}
	}
	if stores {
		stored := dryRun(nil)
		for _, what := range tasks.Pipeline {
			name := what.Name
			got := [2]int64{supposed.deleted[name], supposed.updated[name]}
			if want := [2]int64{stored.deleted[name], stored.updated[name]}; got != want {
				t.Errorf("%s: %d deleted and updated with assumed options, %d with stored ones", name, got, want)
			}
			before := map[string]int64{}
			for _, p := range now.previews[name] {
				before[p.Table+string(p.Action)] = p.Rows + p.Tables
			}
			for _, p := range supposed.previews[name] {
				if want := before[p.Table+string(p.Action)]; p.BaselineRows == nil {
					t.Errorf("%s: the preview of %s has no baseline, want %d", name, p.Table, want)
				} else if *p.BaselineRows != want {
					t.Errorf("%s: the baseline of %s is %d, want %d", name, p.Table, *p.BaselineRows, want)
				}
				delete(before, p.Table+string(p.Action))
			}
			if len(before) > 0 {
				t.Errorf("%s: the preview with assumed options lacks %v", name, before)
			}
		}
	}
	db.Do("DELETE FROM XtkOption; INSERT INTO XtkOption SELECT * FROM before; DROP TABLE before")
}

func resume(c *cleanup.Config, j *journal) {
	c.Succeeded, c.Failed = map[string]bool{}, map[string]bool{}
	for task, state := range j.states {
		c.Succeeded[task], c.Failed[task] = state == cleanup.Succeeded, state == cleanup.Failed ||
			state == cleanup.NotRun
	}
	c.Todo = slices.DeleteFunc(c.Todo, func(task rules.Task) bool { return j.states[task.Name] != "" })
	c.Cursor = j.cursor
}

var modules = []string{
	"NmsBroadLogMid", "NmsProviderMsgId", "NmsDeliveryLogStats", "NmsMobileApp", "NmsAppSubscriptionRcp",
	"NmsPropositionRcp", "NmsPropositionVisitor", "NmsSimulation", "NmsRtEvent", "NmsBatchEvent", "NmsEventHisto",
	"NmsRemaHypothesis", "NmsRemaMatchRcp", "NmsEmailErrorStat", "NmsWebTrackingLog", "NmsExtAccount", "XtkJob",
	"NmsService", "XtkJobLog", "NmsCouponValue", "NmsAddress", "NmsBroadLogMsg",
}

var mappingValues = []any{
	nil, "", "nms:broadLogRcp", "NMS:broadlogrcp", "cus:broadLogStore", "nms:excludeLogRcp", "nms:trackingLogRcp",
	"cus:trackingLogStore", "nms:delivery", "nms:broadLogMid", "xtk:option", "nms:nothing", "a:b:c", ":", "nms:",
	"nms:broadLogRcp; DROP TABLE NmsDelivery", `nms:"broadLogRcp"`, "nms:broadLogRcp ", "elsewhere.nms:broadLogRcp",
}

// randomDatabase fills db with random rows whose dates are near now, and returns it as the model's initial state.
func randomDatabase(t *testing.T, db *pgtest.DB, seed uint64, now time.Time) *model {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	if rng.IntN(3) == 0 { // an old installation with a server west of Greenwich
		db.Superuser(fmt.Sprintf("ALTER DATABASE %s SET timezone = 'America/Bogota'", db.Name))
		db.Reset()
		withoutZone(db)
	}
	for _, i := range installations {
		if rng.IntN(i.oneIn) == 0 {
			i.change(db)
		}
	}
	for _, name := range modules {
		if rng.IntN(8) == 0 {
			db.Do("DROP TABLE IF EXISTS " + name)
		}
	}
	some := someReferences(rng, db)
	conn, err := pgx.Connect(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	d, err := campaigndb.Generate(t.Context(), conn, 3_000, seed, now)
	if err != nil {
		t.Fatal(err)
	}
	if db.Strings("SELECT current_setting('timezone')")[0] == "America/Bogota" {
		d.Zone = time.FixedZone("Bogota", -5*60*60)
	}
	m := &model{db: d, now: now, relations: map[string]relation{}, references: some}
	perturb(rng, d, now)
	for _, f := range some {
		f.satisfy(m)
	}
	if err := d.Load(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	for _, f := range some {
		f.add(db)
	}
	db.Do(
		"CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.NmsVisitor (LIKE NmsVisitor INCLUDING ALL); CREATE TABLE " +
			"elsewhere.wkDlv_999 (i int)",
	)
	makeRelations(rng, db, m)
	return m
}

// perturb sets options and mappings, and adds links that are unlikely by chance.
func perturb(rng *rand.Rand, d *campaigndb.Database, now time.Time) {
	options := d.Table("XtkOption")
	add := func(name string, seconds int64, when any) {
		r := rec{options, make(campaigndb.Row, len(options.Columns))}
		for c, value := range map[string]any{
			"iOptionId":        int64(100_000 + len(options.Rows)),
			"sName":            name,
			"iDataType":        int64(12),
			"iLongValue":       seconds,
			"dDoubleValue":     0.0,
			"tsTimeStampValue": when,
		} {
			r.set(c, value)
		}
		options.Rows = append(options.Rows, r.row)
	}
	write := func(text string) { // turns the option that was added last into a text
		r := rec{options, options.Rows[len(options.Rows)-1]}
		r.set("iDataType", int64(6))
		r.set("sStringValue", text)
	}
	for _, name := range []string{
		"TrackingStat", "TrackingLog", "BroadLog", "RecycledDelivery", "Rejects", "Visitor", "Proposition", "Event",
		"EventHisto", "AppSubscriptionRcp",
	} {
		if rng.IntN(3) == 0 {
			seconds := []int64{30, 86_399, 86_400, 100_000, 40 * 86_400, 2_147_483_647}
			add("NmsCleanup_"+name+"PurgeDelay", seconds[rng.IntN(6)], nil)
			if rng.IntN(4) == 0 {
				write(
					[]string{"", "x", "30 days", " 100000 ", "86400", "3456000.0", "99999999999999999999"}[rng.IntN(7)])
			}
		}
	}
	when := func() any { return now.Add(-time.Duration(rng.IntN(60*24)) * time.Hour) }
	for _, name := range []string{
		"NmsCleanup_LastCleanup", "NmsLastErrorStatCoalesce", "NmsMidSourcing_LastBroadLog_name 1",
		"NmsMidSourcing_LastBroadLog_name 2",
	} {
		if rng.IntN(2) == 0 {
			add(name, 0, when())
			if rng.IntN(8) == 0 {
				write("2026-01-01")
			}
		}
	}
	add("XtkCleanup_NoStats", int64(1+rng.IntN(2)), nil) // analyzing is faster than vacuuming
	if t := d.Table("NmsDeliveryMapping"); t != nil {
		for _, row := range t.Rows {
			r := rec{t, row}
			for _, column := range []string{"sBroadLogSchema", "sBroadLogExclSchema", "sTrackingLogSchema"} {
				r.set(column, mappingValues[rng.IntN(len(mappingValues))])
			}
		}
	}
	if t := d.Table("NmsBroadLogMsg"); t != nil {
		for _, row := range t.Rows {
			if rng.IntN(10) == 0 {
				rec{t, row}.set("sText", "Delivery cancelled")
			}
		}
	}
	if t := d.Table("NmsDelivery"); t != nil {
		for _, row := range t.Rows {
			if rng.IntN(2) == 0 {
				rec{t, row}.set("iMidRemoteId", int64(rng.IntN(10)))
			}
			if rng.IntN(4) == 0 {
				rec{t, row}.set("iDeliveryMode", int64(4))
			}
		}
	}
	for _, t := range d.Tables { // an incomplete restore
		if t.Name != "xtkoption" && rng.IntN(25) == 0 {
			t.Rows = nil
		}
	}
}

func makeRelations(rng *rand.Rand, db *pgtest.DB, m *model) {
	id := func() string {
		n := int64(rng.IntN(32))
		if rng.IntN(4) == 0 {
			n = unsigned(-n)
		}
		return fmt.Sprint(n)
	}
	for range 60 {
		name := []string{
			"wkdlv_", "wkf", "wkfhisto", "grp", "wksimu_",
		}[rng.IntN(5)] + []string{"", "", "", "0"}[rng.IntN(4)] + id()
		name += []string{
			"",
			"",
			"_1",
			"_x_y",
			"x",
			"_grp" + id(),
			"_grp" + id() + "_tmp",
			"_grp" + id() + "x",
			"_grp" + id() + "_tmp_grp" + id(),
		}[rng.IntN(9)]
		if _, there := m.relations[name]; there {
			continue
		}
		m.relations[name] = relation{foreign: rng.IntN(8) == 0}
		if m.relations[name].foreign {
			db.Superuser("CREATE TABLE " + name + " (i int)")
			continue
		}
		db.Do("CREATE UNLOGGED TABLE " + name + " (i int) WITH (autovacuum_enabled = false)")
		if logs := m.db.Table("NmsBroadLogRcp"); logs != nil && len(logs.Rows) > 0 && rng.IntN(2) == 0 {
			var some []int64
			for range rng.IntN(40) {
				some = append(some, rec{logs, logs.Rows[rng.IntN(len(logs.Rows))]}.int("iRecipientId"))
			}
			m.relations[name] = relation{recipients: some}
			db.Do(
				fmt.Sprintf(
					"ALTER TABLE %s ADD iRecipientId %s; INSERT INTO %[1]s (iRecipientId) SELECT "+
						"unnest('{%[3]s}'::bigint[])",
					name,
					[]string{"integer", "bigint", "numeric"}[rng.IntN(3)],
					strings.Trim(strings.Join(strings.Fields(fmt.Sprint(some)), ","), "[]"),
				),
			)
		}
		view := []string{"", "", "", name + "_v", "report_on_" + name}[rng.IntN(5)]
		if _, there := m.relations[view]; view != "" && !there {
			m.relations[view] = relation{on: name}
			db.Do("CREATE VIEW " + view + " AS SELECT * FROM " + name)
		}
	}
}

func (m *model) keys() map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for _, t := range m.db.Tables {
		out[t.Name] = map[string]bool{}
		for _, row := range t.Rows {
			if t.Key != "" {
				out[t.Name][fmt.Sprint(rec{t, row}.int(t.Key))] = true
			}
		}
	}
	return out
}

// line returns a row as text. It leaves out the id and the message of a row that the run inserted.
func line(t *campaigndb.Table, row []any, original map[string]bool) string {
	var parts []string
	made := t.Key != "" && !original[fmt.Sprint(row[t.Column(t.Key)])]
	if t.Name == "xtkjoblog" { // the id of a deleted row may be used again
		message := row[t.Column("sMessage")]
		made = message == nil || message == "Mirror pages purged"
	}
	for c, column := range t.Columns {
		value := row[c]
		if when, ok := value.(time.Time); ok {
			value = when.UTC().Format(time.RFC3339Nano)
		}
		if made && (column == t.Key || column == "smessage" || column == "ilogtype") {
			value = "?"
		}
		parts = append(parts, fmt.Sprintf("%s=%v", column, value))
	}
	return t.Name + ": " + strings.Join(parts, " ")
}

func (m *model) contents(original map[string]map[string]bool) []string {
	var lines []string
	for _, t := range m.db.Tables {
		for _, row := range t.Rows {
			lines = append(lines, line(t, row, original[t.Name]))
		}
	}
	lines = append(lines, slices.Collect(maps.Keys(m.relations))...)
	slices.Sort(lines)
	return lines
}

func contents(t *testing.T, db *pgtest.DB, m *model, original map[string]map[string]bool) []string {
	t.Helper()
	var lines []string
	for _, table := range m.db.Tables {
		var columns []string
		for _, c := range table.Columns {
			if strings.HasPrefix(c, "ts") {
				c += "::timestamptz"
			}
			columns = append(columns, c)
		}
		rows, err := db.Query(connection.InZone(t.Context(), m.zone),
			"SELECT "+strings.Join(columns, ", ")+" FROM "+table.Name)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			values, err := rows.Values()
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line(table, values, original[table.Name]))
		}
		if rows.Err() != nil {
			t.Fatal(rows.Err())
		}
	}
	lines = append(
		lines,
		db.Strings(
			`SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v')
				AND relname ~ '^(wk|grp|report)'`,
		)...)
	slices.Sort(lines)
	return lines
}

func compare(t *testing.T, which string, got, want []string) {
	t.Helper()
	count := map[string]int{}
	for _, line := range got {
		count[line]++
	}
	for _, line := range want {
		count[line]--
	}
	shown := 0
	for _, line := range slices.Sorted(maps.Keys(count)) {
		if n := count[line]; n != 0 && shown < 10 {
			shown++
			t.Errorf("after the %s run: %+d of %s", which, n, line)
		}
	}
}
