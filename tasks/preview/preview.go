package preview

import (
	"time"

	"github.com/cleanupd/cleanupd/tasks/guard"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

type Action string

const (
	Delete Action = "DELETE"
	Update Action = "UPDATE"
	Drop   Action = "DROP"
	Detach Action = "DETACH" // partitions, with their rows
)

// ActionOf returns what a sweep does, which may update rows.
func ActionOf(updates bool, p purge.Partitions) Action {
	switch {
	case updates:
		return Update
	case p == purge.DetachPartitions:
		return Detach
	}
	return Delete
}

// Table is what a task would do to a table, or to its work tables.
type Table struct {
	// Table is the quoted name with the schema, or the pattern of the names of work tables.
	Table  string `json:"Table"`
	Action Action `json:"Action"`
	Rows   int64  `json:"Rows"`
	// Cascaded is how many of Rows foreign keys would delete or change together with other rows.
	Cascaded int64 `json:"Cascaded,omitempty"`
	// RowsTotal and Bytes are estimates. RowsTotal is how many rows the table has, and Bytes the size of the rows to
	// delete.
	RowsTotal int64 `json:"RowsTotal,omitempty"`
	Bytes     int64 `json:"Bytes,omitempty"`
	// Tables is how many work tables would be dropped, and Partitions how many partitions, with all of their rows,
	// would be dropped or detached.
	// Names are some of them.
	Tables     int64    `json:"Tables,omitempty"`
	Partitions int64    `json:"Partitions,omitempty"`
	Names      []string `json:"Names,omitempty"`
	// Oldest and Newest are the first and the last date of the rows; nil if the rule compares no date.
	Oldest *time.Time `json:"Oldest,omitempty"`
	Newest *time.Time `json:"Newest,omitempty"`
	Sample []int64    `json:"Sample,omitempty"`
	Rule   string     `json:"Rule,omitempty"`
	// BaselineRows is the number of rows, or of tables, by the stored options; nil if the dry run uses these.
	BaselineRows *int64       `json:"BaselineRows,omitempty"`
	Guards       []guard.Trip `json:"Guards,omitempty"`
	// Remarks say what cannot be known before the rows are deleted.
	Remarks []string `json:"Remarks,omitempty"`
}

// Task is what a task would do. A run by a saved plan does this and nothing else.
type Task struct {
	Basis Basis `json:"Basis"`
	// Relations are the object ids of the relations that the task changes and reads, by their quoted names.
	Relations map[string]string `json:"Relations,omitempty"`
	// Parents are the ids of the parents. Retained are those whose own rows are retained.
	Parents  []int64 `json:"Parents,omitempty"`
	Retained []int64 `json:"Retained,omitempty"`
	// Dropped are the quoted names of the work tables to drop, and of the partitions to detach.
	Dropped []string `json:"Dropped,omitempty"`
	// Untouched are the parents without any row to delete. RolledUpFrom is when the period begins that the task rolls
	// up; nil if it rolls nothing up. Another worker needs both to continue the dry run.
	Untouched    []int64    `json:"Untouched,omitempty"`
	RolledUpFrom *time.Time `json:"RolledUpFrom,omitempty"`
	// Tables are stored separately.
	Tables []Table `json:"-"`
}
