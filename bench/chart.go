package main

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// Draw writes the results as a bar chart to a file: a group of bars per cell, one bar per method.
func Draw(file string, results []Result) error {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = "rows deleted a second", "rows/s"
	p.Legend.Top = true
	var cells []string
	for i := 0; i < len(results); i += len(Methods) {
		cells = append(cells, fmt.Sprintf("%d", i/len(Methods)+1))
	}
	const width = vg.Length(12)
	for m, method := range Methods {
		var values plotter.Values
		for i := m; i < len(results); i += len(Methods) {
			values = append(values, results[i].RowsPerS)
		}
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = plotutil.SoftColors[m%len(plotutil.SoftColors)], 0
		bars.Offset = width * vg.Length(m-len(Methods)/2)
		p.Add(bars)
		p.Legend.Add(method.Name, bars)
	}
	p.NominalX(cells...)
	return p.Save(vg.Length(len(cells))*3.5*vg.Centimeter+4*vg.Centimeter, 10*vg.Centimeter, file)
}
