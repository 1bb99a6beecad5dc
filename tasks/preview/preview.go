package preview

import (
	"time"

	"github.com/cleanupd/cleanupd/tasks/guard"
)

// Action is what a task would do to a table.
type Action string

// Actions.
const (
	Delete Action = "DELETE"
	Update Action = "UPDATE"
	Drop   Action = "DROP"
)

// Table is what a task would do to a table, or to its work tables.
type Table struct {
	// Table is the quoted name with the schema, or the mask of the names of work tables.
	Table  string `json:"Table"`
	Action Action `json:"Action"`
	// Rows is how many rows would be deleted or updated.
	Rows int64 `json:"Rows"`
	// Cascaded is how many of these foreign keys would delete or change with other rows.
	Cascaded int64 `json:"Cascaded,omitempty"`
	// RowsTotal is how many rows the table has, and Bytes the size of the rows to delete. Both are estimates.
	RowsTotal int64 `json:"RowsTotal,omitempty"`
	Bytes     int64 `json:"Bytes,omitempty"`
	// Tables is how many work tables, or partitions with all their rows, would be dropped, and Names are some of them.
	Tables int64    `json:"Tables,omitempty"`
	Names  []string `json:"Names,omitempty"`
	// Oldest and Newest are the first and last date of the rows; nil if the rule compares no date.
	Oldest *time.Time `json:"Oldest,omitempty"`
	Newest *time.Time `json:"Newest,omitempty"`
	// Sample has the keys of a few rows.
	Sample []int64 `json:"Sample,omitempty"`
	// Rule describes which rows are obsolete.
	Rule string `json:"Rule,omitempty"`
	// BaselineRows is the number of rows, or tables, by the stored options; nil if the dry run uses these.
	BaselineRows *int64 `json:"BaselineRows,omitempty"`
	// Guards are the guards that would trip.
	Guards []guard.Trip `json:"Guards,omitempty"`
	// Remarks describe what cannot be known before the rows are deleted.
	Remarks []string `json:"Remarks,omitempty"`
}

// Task is what a dry run has found of a task. A run by a saved plan does this and no more.
type Task struct {
	Basis Basis `json:"Basis"`
	// Relations are the object ids of the relations that the task sweeps and reads, by their quoted names.
	Relations map[string]string `json:"Relations,omitempty"`
	// Parents are the ids of the parent set, and Retained the parents among them whose own rows are retained.
	Parents  []int64 `json:"Parents,omitempty"`
	Retained []int64 `json:"Retained,omitempty"`
	// Dropped are the quoted names of the work tables to drop.
	Dropped []string `json:"Dropped,omitempty"`
	// Untouched are the parents without any row to delete, and RolledUpFrom is when the period that the task rolls up
	// begins; nil if it rolls nothing up. A dry run that is continued by another worker needs both.
	Untouched    []int64    `json:"Untouched,omitempty"`
	RolledUpFrom *time.Time `json:"RolledUpFrom,omitempty"`
	// Tables are stored apart.
	Tables []Table `json:"-"`
}
