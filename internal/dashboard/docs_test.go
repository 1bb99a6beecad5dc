package dashboard

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Series of a panel that are listed: the largest values.
const mostSeries = 6

// Panels side by side in the picture.
const columns = 4

// writeDocs writes a picture, a table of its values, and the queries.
func writeDocs(dir string, results []result) error {
	if err := picture(filepath.Join(dir, "dashboard.svg"), results); err != nil {
		return err
	}
	var w strings.Builder
	w.WriteString(head)
	for _, r := range results {
		fmt.Fprintf(&w, "| **%s**, %d series | | |\n", r.Title, len(r.series))
		for _, s := range r.series[:min(len(r.series), mostSeries)] {
			fmt.Fprintf(&w, "| %s | %s | %s |\n", s.legend, r.value(s.most()), r.value(s.last()))
		}
	}
	if err := writePage(dir, "dashboard.md", &w); err != nil {
		return err
	}
	w.WriteString(queriesHead)
	for _, r := range results {
		fmt.Fprintf(&w, "**%s.** %s\n\n```\n", r.Title, r.Description)
		for _, q := range r.Targets {
			fmt.Fprintln(&w, q.Expr)
		}
		w.WriteString("```\n\n")
	}
	return writePage(dir, "dashboard-queries.md", &w)
}

// w is emptied.
func writePage(dir, name string, w *strings.Builder) error {
	defer w.Reset()
	return os.WriteFile(filepath.Join(dir, name), []byte(strings.TrimSpace(w.String())+"\n"), 0o644)
}

const head = `# The dashboard

For whoever operates the dashboard: which panels it has, and what they show after a demo.
[The queries](dashboard-queries.md) behind them are on a page of their own.

` + "`deploy/grafana/cleanupd.json`" + ` is a dashboard for Grafana 10 and later: import it, and choose the data
	source and the job.
The values below are from ` + "`cleanupd demo`" + `, scraped four times a second, in Prometheus' own storage and engine.
A query without data fails the test.
The picture shows half a minute, the table the largest and the last values.
Regenerate both pages with

` + "```" + `
cd internal/dashboard && go test -run TestEveryPanelHasData -write
` + "```" + `

![the panels of the dashboard](dashboard.svg)

| panel, series | most | last |
|---|---|---|
`

const queriesHead = `# The queries of the dashboard

For authors of their own dashboards: the query of each panel of [the dashboard](dashboard.md).

`

// picture draws the panels side by side: series over time, or bars of single values.
func picture(file string, results []result) error {
	const width, height = 8 * vg.Centimeter, 5 * vg.Centimeter
	rows := (len(results) + columns - 1) / columns
	canvas := vgsvg.New(columns*width, vg.Length(rows)*height)
	tiles := draw.Tiles{
		Rows:     rows,
		Cols:     columns,
		PadX:     4 * vg.Millimeter,
		PadY:     4 * vg.Millimeter,
		PadTop:   2 * vg.Millimeter,
		PadLeft:  2 * vg.Millimeter,
		PadRight: 2 * vg.Millimeter,
	}
	whole := draw.New(canvas)
	for i, r := range results {
		p, err := r.plot()
		if err != nil {
			return err
		}
		p.Draw(tiles.At(whole, i%columns, i/columns))
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(out); err != nil {
		return err
	}
	return out.Close()
}

func (r result) plot() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.Title.TextStyle.Font.Size = r.Title, font.Length(9)
	for _, text := range []*font.Length{
		&p.X.Tick.Label.Font.Size,
		&p.Y.Tick.Label.Font.Size,
		&p.Legend.TextStyle.Font.Size,
	} {
		*text = 6
	}
	p.Legend.Top, p.Y.Min = true, 0
	series := r.series[:min(len(r.series), mostSeries)]
	if r.Targets[0].Instant {
		p.HideX()
	}
	for i, s := range series {
		color := plotutil.SoftColors[i%len(plotutil.SoftColors)]
		if r.Targets[0].Instant {
			bar, err := plotter.NewBarChart(plotter.Values{s.last()}, vg.Points(10))
			if err != nil {
				return nil, err
			}
			bar.Color, bar.XMin = color, float64(i)
			p.Add(bar)
			p.Legend.Add(s.legend+": "+r.value(s.last()), bar)
			continue
		}
		points := make(plotter.XYs, len(s.points))
		for j, at := range s.points {
			points[j] = plotter.XY{X: float64(at.T-r.from) / 1000, Y: at.F}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		line.Color = color
		p.Add(line)
		p.Legend.Add(s.legend, line)
	}
	if p.Y.Max == 0 { // nothing but zeros
		p.Y.Max = 1
	}
	return p, nil
}
