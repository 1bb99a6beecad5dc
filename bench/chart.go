package main

import (
	"fmt"
	"image/color"
	"path/filepath"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Draw writes a chart of each cell: the speed of each method against the application's 99th percentile, with the
// idle application as the origin. A method above and to the left of another one is faster, and disturbs the
// application less. The file names of further cells include the number of the cell.
func Draw(file string, results []Result, idle Result) error {
	for number, rest := 1, results; len(rest) > 0; number++ {
		n := 1
		for n < len(rest) && rest[n].Cell == rest[0].Cell {
			n++
		}
		name := file
		if number > 1 {
			extension := filepath.Ext(file)
			name = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(file, extension), number, extension)
		}
		if err := drawCell(name, rest[:n], idle); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

func drawCell(file string, results []Result, idle Result) error {
	p := plot.New()
	p.Title.Text = results[0].String()
	p.X.Label.Text, p.Y.Label.Text = "p99 of the application's transactions, ms", "rows deleted a second"
	p.X.Min, p.Y.Min = milliseconds(idle.P99), 0
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs = true, false, -vg.Centimeter
	for i, r := range results {
		point, err := plotter.NewScatter(plotter.XYs{{X: milliseconds(r.P99), Y: r.RowsPerS}})
		if err != nil {
			return err
		}
		point.Shape, point.Color, point.Radius = plotutil.Shape(i), color.Gray{Y: 110}, vg.Points(4)
		if strings.HasPrefix(r.Method, "cleanupd") {
			point.Color, point.Radius = plotutil.Color(i), vg.Points(6)
		}
		point.GlyphStyle = draw.GlyphStyle{Color: point.Color, Radius: point.Radius, Shape: point.Shape}
		p.Add(point)
		p.Legend.Add(r.Method, point)
	}
	return p.Save(24*vg.Centimeter, 15*vg.Centimeter, file)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
