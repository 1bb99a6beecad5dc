package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/cleanupd/cleanupd/internal/etag"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

const Prefix = "policy/"

// In a list of tasks to skip, All means the tasks of all policies.
const All = "policies"

// Policy is a retention rule for a table. A row must meet all conditions that are given.
type Policy struct {
	Name string `json:"name"`
	// Table may have a schema, as in campaign.Scope.
	Table       string `json:"table"`
	Description string `json:"description,omitempty"`
	Enabled     bool   `json:"enabled"`
	// Limit is the most rows of a statement; 0 means the default of tasks.
	Limit      int         `json:"limit,omitempty"`
	OlderThan  *OlderThan  `json:"older_than,omitempty"`
	Filters    []Filter    `json:"filters,omitempty"`
	OrphanOf   *OrphanOf   `json:"orphan_of,omitempty"`
	KeepNewest *KeepNewest `json:"keep_newest,omitempty"`
	// Unreferenced is the condition that no row of another table refers to the row by a foreign key.
	Unreferenced bool `json:"unreferenced,omitempty"`
	// Assign are the new values of columns; if there are none, rows are deleted.
	Assign []Assign `json:"assign,omitempty"`
	// Partitions is empty for the default, which is to drop them.
	Partitions purge.Partitions `json:"partitions,omitempty"`
	// Undo is how long the trash keeps deleted rows after the run ends; nil means as for other tasks of the run.
	Undo *time.Duration `json:"undo,omitempty"`
	// Relations are Table and OrphanOf.ParentTable as they were found when the policy was set. Before that they are
	// nil, and the names are looked up.
	Relations []Relation `json:"-"`
	// Revision changes with the stored rule and with whether it is enabled; it is empty before the policy is stored.
	Revision string `json:"-"`
}

// OlderThan is the condition that the date of a row is before the reference time by more than an age, which is given
// either in days or in hours.
type OlderThan struct {
	Column string `json:"column"`
	Days   *int   `json:"days,omitempty"`
	Hours  *int   `json:"hours,omitempty"`
}

type Filter struct {
	Column string   `json:"column"`
	Op     string   `json:"op"` // a key of ops
	Values []string `json:"values,omitempty"`
}

type OrphanOf struct {
	Column       string `json:"column"`
	ParentTable  string `json:"parent_table"`
	ParentColumn string `json:"parent_column"`
}

// KeepNewest is the condition that a row is not among the newest rows of its group.
type KeepNewest struct {
	Per     []string `json:"per,omitempty"`
	OrderBy string   `json:"order_by,omitempty"` // the column of OlderThan if it is empty
	Count   int      `json:"count"`
}

// Assign sets a column to a text made from the row's key if ValueFromKey is given (see rules.FromKey), and otherwise to
// Value; nil means NULL.
type Assign struct {
	Column       string  `json:"column"`
	Value        *string `json:"value,omitempty"`
	ValueFromKey string  `json:"value_from_key,omitempty"`
}

var ops = map[string]rules.Op{
	"EQUAL":            rules.Equal,
	"NOT_EQUAL":        rules.NotEqual,
	"LESS":             rules.Less,
	"LESS_OR_EQUAL":    rules.LessOrEqual,
	"GREATER":          rules.Greater,
	"GREATER_OR_EQUAL": rules.GreaterOrEqual,
	"IN":               rules.In,
	"NOT_IN":           rules.NotIn,
	"IS_NULL":          rules.Null,
	"IS_NOT_NULL":      rules.NotNull,
	"STARTS_WITH":      rules.StartsWith,
}

func (p Policy) Etag() string { return etag.Of(p) }

// Basis changes if the rule changes, or if a different relation gets the name of one of its tables.
func (p Policy) Basis() string {
	p.Description, p.Enabled, p.Limit, p.Undo = "", false, 0, nil
	if p.Partitions == purge.DropPartitions {
		p.Partitions = "" // which means the same
	}
	return etag.Of([]any{p, p.Relations})
}

// RemovesPartitions reports whether the rule can match all rows of a partition by its bounds: an age alone.
func (p Policy) RemovesPartitions() bool {
	alone := p.Filters == nil && p.OrphanOf == nil && p.KeepNewest == nil && !p.Unreferenced
	return p.OlderThan != nil && alone && p.Assign == nil
}

func (p Policy) TaskName() string { return Prefix + p.Name }

func (p Policy) orderBy() string {
	if p.KeepNewest.OrderBy == "" && p.OlderThan != nil {
		return p.OlderThan.Column
	}
	return p.KeepNewest.OrderBy
}

// TableName returns the table's name, with the schema once that is known.
func (p Policy) TableName() string {
	if p.Relations == nil {
		return p.Table
	}
	return p.Relations[0].quoted()
}

func (p Policy) parentName() string {
	if p.Relations == nil {
		return p.OrphanOf.ParentTable
	}
	return p.Relations[1].quoted()
}

func (p Policy) names() []string {
	if p.OrphanOf == nil {
		return []string{p.TableName()}
	}
	return []string{p.TableName(), p.parentName()}
}

func (p Policy) title() string {
	if line, _, _ := strings.Cut(p.Description, "\n"); line != "" {
		return line
	}
	return fmt.Sprintf("Policy %s", p.Name)
}
