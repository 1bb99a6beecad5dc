package preview

import (
	"time"

	"github.com/cleanupd/cleanupd/tasks/guard"
)

type Action string

const (
	Delete Action = "DELETE"
	Update Action = "UPDATE"
	Drop   Action = "DROP"
)

// What a task would do to a table, or to its work tables.
type Table struct {
	// The quoted name with the schema, or the mask of the names of work tables.
	Table  string `json:"Table"`
	Action Action `json:"Action"`
	Rows   int64  `json:"Rows"`
	// How many of Rows foreign keys would delete or change with other rows.
	Cascaded int64 `json:"Cascaded,omitempty"`
	// Both are estimates. Bytes is the size of the rows to delete.
	RowsTotal int64 `json:"RowsTotal,omitempty"`
	Bytes     int64 `json:"Bytes,omitempty"`
	// Tables is how many work tables, or partitions with all their rows, would be dropped; Names are some of them.
	Tables int64    `json:"Tables,omitempty"`
	Names  []string `json:"Names,omitempty"`
	// The first and last date of the rows; nil if the rule compares no date.
	Oldest *time.Time `json:"Oldest,omitempty"`
	Newest *time.Time `json:"Newest,omitempty"`
	Sample []int64    `json:"Sample,omitempty"`
	Rule   string     `json:"Rule,omitempty"`
	// The number of rows, or tables, by the stored options; nil if the dry run uses these.
	BaselineRows *int64       `json:"BaselineRows,omitempty"`
	Guards       []guard.Trip `json:"Guards,omitempty"`
	// What cannot be known before the rows are deleted.
	Remarks []string `json:"Remarks,omitempty"`
}

// A run by a saved plan does this and no more.
type Task struct {
	Basis Basis `json:"Basis"`
	// Object ids of the relations that the task sweeps and reads, by their quoted names.
	Relations map[string]string `json:"Relations,omitempty"`
	// Parents are ids. Retained are those whose own rows are retained.
	Parents  []int64 `json:"Parents,omitempty"`
	Retained []int64 `json:"Retained,omitempty"`
	// Quoted names of the work tables to drop.
	Dropped []string `json:"Dropped,omitempty"`
	// Untouched are the parents without any row to delete. RolledUpFrom is when the period that the task rolls up
	// begins; nil if it rolls nothing up. Another worker needs both to continue the dry run.
	Untouched    []int64    `json:"Untouched,omitempty"`
	RolledUpFrom *time.Time `json:"RolledUpFrom,omitempty"`
	// Tables are stored separately.
	Tables []Table `json:"-"`
}
