package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

func Print(w io.Writer, results []Result, idle Result) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var cell *Cell
	var measure float64
	for _, r := range results {
		if cell == nil || *cell != r.Cell {
			cell, measure = &r.Cell, r.RowsPerS
			fmt.Fprintf(table, "\n%s\nMETHOD\tROWS/S\tTIMES %s\tSTATEMENT P99\tAPPLICATION P50\tP99\tWAL\t\n", r.Cell,
				strings.ToUpper(r.Method))
			if idle.P99 > 0 {
				fmt.Fprintf(table, "(nothing)\t\t\t\t%s\t%s\t\t\n", short(idle.P50), short(idle.P99))
			}
		}
		unfinished := ""
		if !r.Finished {
			unfinished = "did not finish"
		}
		fmt.Fprintf(table, "%s\t%.0f\t%.2f\t%s\t%s\t%s\t%d MB\t%s\n", r.Method, r.RowsPerS, r.RowsPerS/measure,
			short(r.LongestStmt), short(r.P50), short(r.P99), r.WAL>>20, unfinished)
	}
	for _, half := range results {
		for _, whole := range results {
			same := half.Cell
			if same.Rows *= 2; same == whole.Cell && half.Method == whole.Method && half.Method == "cleanupd" {
				fmt.Fprintf(table, "\n%s, instead of half as many rows: %.2f times the rows/s\n", whole.Cell,
					whole.RowsPerS/half.RowsPerS)
			}
		}
	}
	return table.Flush()
}

// short formats a duration; it is empty if that was not measured.
func short(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.Round(100 * time.Microsecond).String()
}
