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

// shares says how many of a thousand rows a table gets. The other tables have a few hundred rows at most.
var shares = map[string]int{
	"nmsbroadlogrcp":           220,
	"nmstrackinglogrcp":        180,
	"nmsrcpgrprel":             60,
	"nmsexcludelogrcp":         40,
	"cusbroadlogstore":         40,
	"nmsbroadlogmid":           40,
	"custrackinglogstore":      40,
	"nmswebtrackinglog":        60,
	"nmsmirrorpagesearch":      30,
	"nmspropositionrcp":        30,
	"nmspropositionvisitor":    20,
	"nmsvisitor":               40,
	"nmsaddress":               40,
	"xtkworkflowlog":           30,
	"xtkworkflowtask":          15,
	"xtkworkflowevent":         15,
	"nmssubscription":          15,
	"nmsappsubscriptionrcp":    10,
	"xtkreject":                10,
	"nmstrackingstats":         10,
	"nmsrtevent":               15,
	"nmsbatchevent":            10,
	"nmseventhisto":            15,
	"xtkaudit":                 10,
	"nmsremamatchrcp":          5,
	"xtkjoblog":                10,
	"nmsemailerrorstat":        5,
	"nmsprovidermsgid":         5,
	"nmsbroadlogeventhisto":    5,
	"nmstrackinglogeventhisto": 5,
}

// fewRows is the maximum size of a table without a share.
const fewRows = 200

// Fill inserts about as many rows as given in the tables of the schema public, and creates work tables. The same
// seed gives the same rows.
func Fill(ctx context.Context, conn *pgx.Conn, rows int, seed uint64, now time.Time) error {
	d, err := Generate(ctx, conn, rows, seed, now)
	if err != nil {
		return err
	}
	d.Tables = slices.DeleteFunc(d.Tables,
		func(t *Table) bool { return t.Name == "xtkoption" || t.Name == "nmsdeliverymapping" })
	if err := d.Load(ctx, conn); err != nil {
		return err
	}
	for _, sql := range append([]string{mappings}, workTables()...) {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	_, err = conn.Exec(ctx, "ANALYZE")
	return err
}

// Generate makes rows on both sides of every cutoff as of now, with NULL dates, negative ids, dangling links, and a
// zero record in every table that has one.
func Generate(ctx context.Context, conn *pgx.Conn, rows int, seed uint64, now time.Time) (*Database, error) {
	tables, err := describe(ctx, conn)
	if err != nil {
		return nil, err
	}
	g := &generator{
		rand:    rand.New(rand.NewPCG(seed, 0)),
		now:     now.Truncate(time.Microsecond),
		parents: min(fewRows, rows/100),
	}
	for _, t := range tables {
		count := g.parents
		if share, ok := shares[t.Name]; ok {
			count = rows * share / 1000
		}
		for i := range count {
			t.Rows = append(t.Rows, g.row(t, i))
		}
	}
	return &Database{Tables: tables}, nil
}

const mappings = `
INSERT INTO NmsDeliveryMapping VALUES
  (0, NULL, NULL, NULL, NULL),
  (1, 'mapRecipient', 'nms:broadLogRcp', 'nms:excludeLogRcp', 'nms:trackingLogRcp'),
  (2, 'mapStore', 'cus:broadLogStore', NULL, 'cus:trackingLogStore'),
  (11, 'mapRtEvent', 'nms:broadLogRtEvent', NULL, 'nms:trackingLogRtEvent'),
  (12, 'mapBatchEvent', 'nms:broadLogBatchEvent', NULL, 'nms:trackingLogBatchEvent'),
  (13, 'mapVisitor', 'nms:broadLogVisitor', NULL, 'nms:trackingLogVisitor'),
  (14, 'mapSubscribe', 'nms:broadLogSvc', NULL, 'nms:trackingLogSvc'),
  (15, 'mapOperator', 'nms:broadLogOp', NULL, NULL);
INSERT INTO XtkOption (iOptionId) VALUES (0)`

// workTables returns statements that create work tables. Their ids 12, 500001 … are in use, 99000 … are not.
func workTables() []string {
	sql := []string{
		"INSERT INTO NmsDelivery (iDeliveryId, sLabel, iState, iDeliveryMode, tsValidity, tsLastModified) VALUES " +
			"(500001, 'Newsletter', 55, 1, now() + interval '30 days', now())",
		"INSERT INTO NmsGroup (iGroupId, sLabel, iType, tsLastModified) VALUES (500002, 'Regular customers', 1, now())",
	}
	for _, name := range []string{
		"wkDlv_500001_1", "wkDlv_99000_1", "wkf12_3", "wkf99001_1", "wkf4294967290_3", "wkf99002_grp500002",
		"wkfhisto12_query", "wkfhisto99001_query", "grp500002", "grp99003", "wkSimu_16_aggr", "wkSimu_99004_aggr",
	} {
		sql = append(sql,
			fmt.Sprintf(
				"CREATE UNLOGGED TABLE %s WITH (autovacuum_enabled = false) AS SELECT generate_series(1, 10) AS iId",
				name))
	}
	return append(sql, "CREATE VIEW wkf99001_1_view AS SELECT * FROM wkf99001_1")
}

// generator makes columns of the same name mean the same in all tables.
type generator struct {
	rand *rand.Rand
	now  time.Time
	// parents is how many rows the linked tables have.
	parents int
}

// link returns an id that exists, one that does not, or 0.
func (g *generator) link() int64 {
	switch g.rand.IntN(20) {
	case 0:
		return 0
	case 1, 2:
		return int64(1_000_000 + g.rand.IntN(100)) // does not exist
	}
	return id(1 + g.rand.IntN(max(g.parents-1, 1)))
}

// noZero lists the tables with an integer key and no zero record.
var noZero = []string{
	"nmsbroadlogeventhisto", "nmstrackinglogeventhisto", "nmseventhisto", "nmsmirrorpageinfo", "nmsmirrorpagesearch",
	"nmswebtrackinglog", "nmsremamatchrcp",
}

// id returns the i-th id. The zero record comes first, and one in ten ids is from a sequence that wrapped around.
func id(i int) int64 {
	if i%10 == 9 {
		return -int64(i)
	}
	return int64(i)
}

// ages are in days before now, and there must be dates on both sides of each. They are the default delays, and those
// in the rules of deliveries.
var ages = []int{0, 7, 15, 30, 180, 185, 365}

// date returns a date just older or just younger than an age, any time in the last two years or the next days, or
// NULL.
func (g *generator) date() any {
	switch g.rand.IntN(10) {
	case 0:
		return nil
	case 1, 2, 3:
		side := time.Duration(g.rand.IntN(3)-1) * []time.Duration{time.Microsecond, time.Second, time.Hour}[g.rand.IntN(
			3)]
		return g.now.Add(-time.Duration(ages[g.rand.IntN(len(ages))])*24*time.Hour + side)
	}
	return g.now.Add(10*24*time.Hour - time.Duration(g.rand.Int64N(int64(740*24*time.Hour)))).Truncate(time.Microsecond)
}

// logStates are: ignored, sent, failed, to send, cancelled.
var logStates = []int64{0, 1, 1, 1, 2, 6, 6, 7}

// choices are the values of enumerated columns, by the column, or by table and column.
var choices = map[string][]int64{
	"nmsaddress.istatus":      {1, 2, 3},
	"nmsaddress.itype":        {0, 1, 41, 42},
	"nmsvisitor.irecipientid": {0, 0, 0, 7},
	"iorigin":                 {0, 0, 1},
	"nmsdelivery.istate": {
		0, 11, 12, 13, 15, 21, 22, 25, 37, 45, 51, 55, 61, 62, 71, 75, 81, 85, 85, 85, 95, 95, 95, 100,
	},
	"istate":                   {0, 11, 13, 20, 20},
	"ideletestatus":            {0, 0, 0, 0, 1, 2},
	"istatus":                  {0, 1, 2, 3, 6},
	"idisabled":                {0, 0, 1},
	"nmsbroadlogrcp.istatus":   logStates,
	"nmsbroadlogmid.istatus":   logStates,
	"cusbroadlogstore.istatus": logStates,
	"ideliverymode":            {0, 1, 1, 4},
	"iismodel":                 {0, 0, 1},
	"iwebrespurged":            {0, 1},
	"ineedmirrorpage":          {0, 1},
	"iactive":                  {0, 1},
	"ihistory":                 {0, 30, 90, 9_999_999},
	"itype":                    {0, 1},
	"imidremoteid":             {0},
	"iproofeddeliveryid":       {0, 0, 1},
	"itodeliver":               {0, 9_999, 10_000, 2_147_483_647},
	"iprocessed":               {0, 0, 1, -2_147_483_648},
	"itotalerrors":             {0, 5, 19, 20, 2_147_483_647},
	"itotalconnections":        {1, 2_147_483_647},
}

// counted lists columns that make a row unique, some of them together with a link.
var counted = []string{
	"irecipientid", "itypologyruleid", "ipublicid", "imsgid", "ioperatorid", "ibroadlogid", "ipropositionid",
	"itaskidentifier", "ieventidentifier",
}

func (g *generator) row(t *Table, i int) Row {
	row := make(Row, len(t.Columns))
	for c, column := range t.Columns {
		row[c] = g.value(t.Name, column, column == t.Key, i)
	}
	return row
}

func (g *generator) value(table, column string, isKey bool, i int) any {
	choice, ok := choices[table+"."+column]
	if !ok {
		choice, ok = choices[column]
	}
	switch {
	case table == "nmsremamatchrcp" && column == "ihypothesisid":
		// It is the table's key and a link; one in three is dangling.
		return id(i+1) + int64(i%3/2)*1_000_000
	case isKey && slices.Contains(noZero, table):
		return id(i + 1)
	case isKey:
		return id(i)
	case table == "xtkoption" && column == "sname" && i == 0:
		return nil
	case column == "tsdate": // part of keys, so it must be unique
		return g.now.Add(12*time.Hour - time.Duration(i+1)*40*time.Minute)
	case table == "nmsemailerrorstat" && column == "ipublicid": // rows are summed up by it
		return int64(i % 3)
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
		return float64(g.rand.IntN(100))
	case strings.HasSuffix(column, "id") || column == "imxip":
		return g.link()
	}
	return int64(g.rand.IntN(100))
}
