package campaigndb

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// shares is how many rows of a thousand go to the tables that have many; the others have a few hundred at most.
var shares = map[string]int{
	"nmsbroadlogrcp": 220, "nmstrackinglogrcp": 180, "nmsrcpgrprel": 60, "nmsexcludelogrcp": 40, "cusbroadlogstore": 40,
	"nmsbroadlogmid": 40, "custrackinglogstore": 40, "nmswebtrackinglog": 60, "nmsmirrorpagesearch": 30, "nmspropositionrcp": 30,
	"nmspropositionvisitor": 20, "nmsvisitor": 40, "nmsaddress": 40, "xtkworkflowlog": 30, "xtkworkflowtask": 15, "xtkworkflowevent": 15,
	"nmssubscription": 15, "nmsappsubscriptionrcp": 10, "xtkreject": 10, "nmstrackingstats": 10, "nmsrtevent": 15, "nmsbatchevent": 10,
	"nmseventhisto": 15, "xtkaudit": 10, "nmsremamatchrcp": 5, "xtkjoblog": 10, "nmsemailerrorstat": 5, "nmsprovidermsgid": 5,
}

// fewRows is the size of a table that has no share, at most.
const fewRows = 200

// tablesInOrder are the tables of the schema with their columns, by name.
const tablesInOrder = `
SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum),
  COALESCE((SELECT k.attname::text FROM pg_index i JOIN pg_attribute k ON k.attrelid = i.indrelid AND k.attnum = i.indkey[0]
    WHERE i.indrelid = c.oid AND i.indisunique AND i.indnatts = 1 AND k.atttypid IN (21, 23, 20) LIMIT 1), '')
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND c.relname <> 'xtkoption' GROUP BY c.oid, c.relname ORDER BY 1`

// Fill puts about so many rows into the tables of the schema public: on both sides of every cutoff as of now, with
// NULL dates, negative ids, a zero record in every table that has one integer key, and work tables. The same seed
// gives the same rows.
func Fill(ctx context.Context, conn *pgx.Conn, rows int, seed uint64, now time.Time) error {
	type shape struct {
		name    string
		columns []string
		key     string
	}
	result, err := conn.Query(ctx, tablesInOrder)
	if err != nil {
		return err
	}
	tables, err := pgx.CollectRows(result, func(row pgx.CollectableRow) (s shape, err error) {
		return s, row.Scan(&s.name, &s.columns, &s.key)
	})
	if err != nil {
		return err
	}
	g := &generator{rand: rand.New(rand.NewPCG(seed, 0)), now: now}
	for _, t := range tables {
		count := min(fewRows, rows/100)
		if share, ok := shares[t.name]; ok {
			count = rows * share / 1000
		}
		if t.name == "nmsdeliverymapping" {
			continue
		}
		i := -1
		source := pgx.CopyFromFunc(func() ([]any, error) {
			if i++; i >= count {
				return nil, nil
			}
			return g.row(t.name, t.columns, t.key, i), nil
		})
		if _, err := conn.CopyFrom(ctx, pgx.Identifier{"public", t.name}, t.columns, source); err != nil {
			return fmt.Errorf("fill %s: %w", t.name, err)
		}
	}
	for _, sql := range append([]string{mappings}, workTables()...) {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	_, err = conn.Exec(ctx, "ANALYZE")
	return err
}

const mappings = `
INSERT INTO NmsDeliveryMapping VALUES
  (0, NULL, NULL, NULL, NULL),
  (1, 'mapRecipient', 'nms:broadLogRcp', 'nms:excludeLogRcp', 'nms:trackingLogRcp'),
  (2, 'mapStore', 'cus:broadLogStore', NULL, 'cus:trackingLogStore')`

// workTables are some of what workflows, deliveries, lists and simulations leave behind.
func workTables() []string {
	var sql []string
	for _, name := range []string{"wkDlv_10_1", "wkDlv_99000_1", "wkf12_3", "wkf99001_1", "wkf4294967290_3", "wkfhisto12_query", "wkf99002_grp14", "grp14", "grp99003", "wkSimu_16_aggr", "wkSimu_99004_aggr"} {
		sql = append(sql, fmt.Sprintf("CREATE TABLE %s (iId integer)", name))
	}
	return append(sql, "CREATE VIEW wkf99001_1_view AS SELECT * FROM wkf99001_1")
}

// generator makes rows by the columns' names, which mean the same in all tables.
type generator struct {
	rand *rand.Rand
	now  time.Time
}

// parents is how many ids there are that a link may lead to.
const parents = 150

// link is an id of a parent: one that is there, one that is not, or none.
func (g *generator) link() int64 {
	switch g.rand.IntN(20) {
	case 0:
		return 0
	case 1, 2:
		return int64(1_000_000 + g.rand.IntN(parents)) // leads to nothing
	}
	return id(1 + g.rand.IntN(parents-1))
}

// id is the key of the i-th row: the zero record first, and one in ten of a sequence that wrapped around.
func id(i int) int64 {
	if i%10 == 9 {
		return -int64(i)
	}
	return int64(i)
}

// retentions are the delays, in days, on both sides of which dates are to lie.
var retentions = []int{7, 30, 180, 185, 360}

// date is a moment on either side of a cutoff, sometimes by a second; or any in the last two years; or NULL.
func (g *generator) date() any {
	switch g.rand.IntN(10) {
	case 0:
		return nil
	case 1:
		side := time.Duration(g.rand.IntN(2)*2-1) * time.Hour
		return g.now.AddDate(0, 0, -retentions[g.rand.IntN(len(retentions))]).Add(side)
	}
	return g.now.Add(-time.Duration(g.rand.Int64N(int64(730 * 24 * time.Hour)))).Truncate(time.Microsecond)
}

// choices are the values of the columns that stand for a choice, by the column, or by table and column.
var choices = map[string][]int64{
	"nmsaddress.istatus": {1, 2, 3}, "nmsaddress.itype": {0, 1, 41, 42}, "nmsvisitor.irecipientid": {0, 0, 0, 7}, "iorigin": {0, 0, 1},
	"istate": {0, 20, 51, 55, 85, 95, 100}, "ideletestatus": {0, 0, 0, 0, 1, 2}, "istatus": {0, 1, 2, 3, 6}, "idisabled": {0, 0, 1},
	"ideliverymode": {0, 1, 1, 4}, "iismodel": {0, 0, 1}, "iwebrespurged": {0, 1}, "ineedmirrorpage": {0, 1}, "iactive": {0, 1}, "ihistory": {0, 30, 90},
	"itype": {0, 1}, "nmsservice.itype": {0, 1}, "imidremoteid": {0}, "iproofeddeliveryid": {0},
}

// counted are columns that, with a link, make a row unique.
var counted = []string{"irecipientid", "itypologyruleid", "ipublicid", "imsgid", "ioperatorid", "ibroadlogid", "ipropositionid"}

func (g *generator) row(table string, columns []string, key string, i int) []any {
	row := make([]any, len(columns))
	for c, column := range columns {
		row[c] = g.value(table, column, column == key, i)
	}
	return row
}

func (g *generator) value(table, column string, isKey bool, i int) any {
	choice, ok := choices[table+"."+column]
	if !ok {
		choice, ok = choices[column]
	}
	switch {
	case isKey:
		return id(i)
	case column == "tsdate": // a part of keys: no two alike
		return g.now.Add(-time.Duration(i+1) * 40 * time.Minute)
	case strings.HasPrefix(column, "ts"):
		return g.date()
	case ok:
		return choice[g.rand.IntN(len(choice))]
	case slices.Contains(counted, column):
		return int64(i)
	case strings.HasPrefix(column, "s"):
		return fmt.Sprintf("%s %d", column[1:], i)
	case strings.HasPrefix(column, "m"):
		return strings.Repeat("lorem ipsum ", 5)
	case strings.HasPrefix(column, "d"):
		return g.rand.Float64() * 100
	case strings.HasSuffix(column, "id") || column == "imxip":
		return g.link()
	}
	return int64(g.rand.IntN(100))
}
