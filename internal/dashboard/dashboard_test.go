package dashboard

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/teststorage"
)

var write = flag.Bool("write", false, "write docs/reference/dashboard*.md and dashboard.svg")

// As a panel shows it.
type shown struct {
	legend string
	points []promql.FPoint
}

func (s shown) last() float64 { return s.points[len(s.points)-1].F }

func (s shown) most() float64 {
	return slices.MaxFunc(s.points, func(a, b promql.FPoint) int { return cmp.Compare(a.F, b.F) }).F
}

// Every query of every panel has data after the demo, in Prometheus' own engine.
func TestEveryPanelHasData(t *testing.T) {
	storage := teststorage.New(t)
	url := demo(t)
	begun := time.Now()
	scraping, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- record(scraping, url, storage) }()
	call(t, "PUT", url+"/v1/schedule", `{"cron": "0 4 * * *", "timeZone": "UTC", "enabled": true}`)
	call(t, "POST", url+"/v1/runs", `{"undo": "3600s"}`)
	call(t, "POST", url+"/v1/runs", `{"dryRun": true}`)
	for range 20 { // the database is queried for metrics every 15 seconds
		call(t, "GET", url+"/v1/tasks", "")
		call(t, "GET", url+"/v1/runs/unknown", "")
		time.Sleep(time.Second)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	e := engine(t)
	var results []result
	for _, p := range readBoard(t).queried() {
		r := result{panel: p, from: begun.UnixMilli()}
		for _, q := range p.Targets {
			series, err := evaluate(t.Context(), e, storage, q, begun, time.Now())
			if err != nil || len(series) == 0 {
				t.Errorf("%q has no data: %s: %v", p.Title, q.Expr, err)
			}
			r.series = append(r.series, series...)
		}
		results = append(results, r)
	}
	if *write && !t.Failed() {
		if err := writeDocs("../../docs/reference", results); err != nil {
			t.Fatal(err)
		}
	}
}

// NaN counts as no data.
func evaluate(
	ctx context.Context, e *promql.Engine, storage *teststorage.TestStorage, q target, from, to time.Time,
) ([]shown, error) {
	step := to.Sub(from) / 60
	if q.Instant {
		from = to
	}
	query, err := e.NewRangeQuery(ctx, storage, nil, q.query(scrapeEvery*2, to.Sub(from)+time.Minute), from, to, step)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	matrix, err := query.Exec(ctx).Matrix()
	if err != nil {
		return nil, err
	}
	var all []shown
	for _, series := range matrix {
		points := slices.DeleteFunc(slices.Clone(series.Floats), func(p promql.FPoint) bool { return math.IsNaN(p.F) })
		if len(points) > 0 {
			all = append(all, shown{legend(q.LegendFormat, series.Metric), points})
		}
	}
	slices.SortFunc(all, func(a, b shown) int {
		return cmp.Or(cmp.Compare(b.most(), a.most()), strings.Compare(a.legend, b.legend))
	})
	return all, nil
}

func legend(format string, metric labels.Labels) string {
	return legendLabel.ReplaceAllStringFunc(format,
		func(m string) string { return metric.Get(legendLabel.FindStringSubmatch(m)[1]) })
}

type result struct {
	panel
	from   int64 // milliseconds
	series []shown
}

func (r result) value(v float64) string {
	switch r.FieldConfig.Defaults.Unit {
	case "s":
		if math.Abs(v) > 60 {
			return time.Duration(v * float64(time.Second)).Round(time.Second).String()
		}
		return fmt.Sprintf("%.4g s", v)
	case "bytes":
		return fmt.Sprintf("%.3g MiB", v/(1<<20))
	case "percentunit":
		return fmt.Sprintf("%.3g %%", 100*v)
	case "rowsps":
		return fmt.Sprintf("%.4g rows/s", v)
	case "reqps":
		return fmt.Sprintf("%.3g/s", v)
	}
	return fmt.Sprintf("%.4g", v)
}
