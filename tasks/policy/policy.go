package policy

import (
	"fmt"
	"strings"

	"github.com/cleanupd/cleanupd/internal/etag"
	"github.com/cleanupd/cleanupd/tasks/plan"
)

// Prefix begins the names of tasks that carry out policies, and of no others.
const Prefix = "policy/"

// All stands for the tasks of all policies, where tasks to skip are named.
const All = "policies"

// Policy is a retention rule for one table. All conditions that are given must be true of a row.
type Policy struct {
	Name string `json:"name"`
	// Table is the name of the table, with or without its schema, as in campaign.Scope.
	Table       string `json:"table"`
	Description string `json:"description,omitempty"`
	// Enabled is true if runs carry the policy out.
	Enabled bool `json:"enabled"`
	// Limit is the largest number of rows of a statement; 0 for the default of tasks.
	Limit      int         `json:"limit,omitempty"`
	OlderThan  *OlderThan  `json:"older_than,omitempty"`
	Filters    []Filter    `json:"filters,omitempty"`
	OrphanOf   *OrphanOf   `json:"orphan_of,omitempty"`
	KeepNewest *KeepNewest `json:"keep_newest,omitempty"`
	// Assign overwrites columns of the rows, which are deleted if it is empty.
	Assign []Assign `json:"assign,omitempty"`
	// Relations are those of Table and of OrphanOf.ParentTable, as they were resolved when the policy was set. There are
	// none before that: then the names are looked up.
	Relations []Relation `json:"-"`
	// Revision tells the stored rule, and whether it is enabled, from others; empty before it is stored.
	Revision string `json:"-"`
}

// OlderThan is true of rows whose date is more than a number of days before the reference time.
type OlderThan struct {
	Column string `json:"column"`
	Days   int    `json:"days"`
}

// Filter compares a column with values.
type Filter struct {
	Column string   `json:"column"`
	Op     string   `json:"op"` // a key of ops
	Values []string `json:"values,omitempty"`
}

// OrphanOf is true of rows whose parent row does not exist.
type OrphanOf struct {
	Column       string `json:"column"`
	ParentTable  string `json:"parent_table"`
	ParentColumn string `json:"parent_column"`
}

// KeepNewest is true of rows that are not among the newest ones of their group.
type KeepNewest struct {
	Per     []string `json:"per,omitempty"`
	OrderBy string   `json:"order_by,omitempty"` // the column of OlderThan if it is empty
	Count   int      `json:"count"`
}

// Assign is a new value of a column; NULL if it is nil.
type Assign struct {
	Column string  `json:"column"`
	Value  *string `json:"value,omitempty"`
}

// ops are the comparisons, by their names.
var ops = map[string]plan.Op{
	"EQUAL":            plan.Equal,
	"NOT_EQUAL":        plan.NotEqual,
	"LESS":             plan.Less,
	"LESS_OR_EQUAL":    plan.LessOrEqual,
	"GREATER":          plan.Greater,
	"GREATER_OR_EQUAL": plan.GreaterOrEqual,
	"IN":               plan.In,
	"NOT_IN":           plan.NotIn,
	"IS_NULL":          plan.Null,
	"IS_NOT_NULL":      plan.NotNull,
	"STARTS_WITH":      plan.StartsWith,
}

// Etag returns the etag of the policy.
func (p Policy) Etag() string { return etag.Of(p) }

// Basis returns what changes if the rule of the policy does, or if another relation has the name of one of its tables.
func (p Policy) Basis() string {
	p.Description, p.Enabled, p.Limit = "", false, 0
	return etag.Of([]any{p, p.Relations})
}

// TaskName returns the name of the policy's task.
func (p Policy) TaskName() string { return Prefix + p.Name }

// orderBy returns the column by which rows are newer than others.
func (p Policy) orderBy() string {
	if p.KeepNewest.OrderBy == "" && p.OlderThan != nil {
		return p.OlderThan.Column
	}
	return p.KeepNewest.OrderBy
}

// TableName returns the name of the table, with its schema once that is known.
func (p Policy) TableName() string {
	if p.Relations == nil {
		return p.Table
	}
	return p.Relations[0].quoted()
}

// parentName returns the name of the parent table as TableName does.
func (p Policy) parentName() string {
	if p.Relations == nil {
		return p.OrphanOf.ParentTable
	}
	return p.Relations[1].quoted()
}

// names returns the names of all tables of the policy.
func (p Policy) names() []string {
	if p.OrphanOf == nil {
		return []string{p.TableName()}
	}
	return []string{p.TableName(), p.parentName()}
}

// title returns the name of the task for people.
func (p Policy) title() string {
	if line, _, _ := strings.Cut(p.Description, "\n"); line != "" {
		return line
	}
	return fmt.Sprintf("Policy %s", p.Name)
}
