package forms

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Column is a column of a table.
type Column struct {
	Table  string // as stored
	Quoted string // the table's name in a statement
	Name   string // as stored
	Type   string
	Cast   string // the type to compare an id in
	Number bool   // the column holds numbers
	Date   bool   // the column holds dates
}

const (
	// InstanceTable is the table of the process instances.
	InstanceTable = "tb_process_instance"
	// InstanceColumn is the column of a workflow's table with the process instance of a row.
	InstanceColumn = "process_instance_id"
)

// requiredTables are the tables without which nothing can be found; storageTables are the tables of a document storage in
// the database.
var (
	requiredTables = []string{
		"edcprincipalentity", "tb_task", "tb_assignment", "tb_queue", InstanceTable, "omd_object_type", "tb_form_data",
	}
	storageTables = []string{"tb_dm_chunk", "tb_dm_session_reference", "tb_dm_deletion"}
)

// CheckTables fails with ErrNotForms if tables are missing; with storage, also tables of the document storage.
func (t *Transaction) CheckTables(ctx context.Context, storage bool) error {
	tables := requiredTables
	if storage {
		tables = slices.Concat(requiredTables, storageTables)
	}
	missing, err := t.missing(ctx, t, tables)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf(
			"%w: it lacks %s; check its name, and on PostgreSQL the role's search_path", ErrNotForms,
			strings.Join(missing, ", "),
		)
	}
	return nil
}

// Existing returns the tables that exist.
func (t *Transaction) Existing(ctx context.Context, tables []string) ([]string, error) {
	missing, err := t.missing(ctx, t, tables)
	return slices.DeleteFunc(slices.Clone(tables), func(t string) bool { return slices.Contains(missing, t) }), err
}

// DateColumns returns the columns of tb_process_instance that hold dates.
func (t *Transaction) DateColumns(ctx context.Context) ([]Column, error) {
	all, err := t.columns(ctx, t, []string{InstanceTable})
	return slices.DeleteFunc(all, func(c Column) bool { return !c.Date }), err
}

// workflowTable matches the names of workflows' tables. No other table is touched, even if omd_object_type names it.
var workflowTable = regexp.MustCompile(`^tb_[0-9]+$`)

// WorkflowColumns returns the columns of the tables of workflows whose names match. Names from omd_object_type are used
// only if the catalog has them, too. known reports whether a name matches.
func (t *Transaction) WorkflowColumns(
	ctx context.Context, match func(name string) bool,
) (columns []Column, known bool, err error) {
	var name, table string
	var tables []string
	query := "SELECT name, database_table FROM omd_object_type WHERE name IS NOT NULL AND database_table IS NOT NULL"
	if err := t.Each(ctx, query, nil, []any{&name, &table}, func() {
		matches := match(name)
		known = known || matches
		if matches && workflowTable.MatchString(table) && !slices.Contains(tables, table) {
			tables = append(tables, table)
		}
	}); err != nil {
		return nil, false, err
	}
	columns, err = t.columns(ctx, t, tables)
	hasInstance := map[string]bool{}
	for _, c := range columns {
		hasInstance[c.Table] = hasInstance[c.Table] || c.Name == InstanceColumn
	}
	return slices.DeleteFunc(columns, func(c Column) bool { return !hasInstance[c.Table] }), known, err
}
