package forms

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

type Column struct {
	Table  string // as stored
	Quoted string // the table's name in a statement
	Name   string // as stored
	Type   string
	Cast   string // the type to compare an id in
	Number bool   // the column holds numbers
	Date   bool   // the column holds dates
	// The column has the process instance of a row in a workflow's table.
	Instance bool
	// The name of a workflow's table stands for several tables, this one among them.
	Ambiguous bool
}

const (
	// The process instances.
	InstanceTable = "tb_process_instance"
	// The column of a workflow's table with the process instance of a row.
	instanceColumn = "process_instance_id"
)

// Without requiredTables nothing can be found; storageTables are those of a document storage in the database.
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
		return fmt.Errorf("%w: it lacks %s; check its name, and on PostgreSQL the role's search_path", ErrNotForms,
			strings.Join(missing, ", "))
	}
	return nil
}

func (t *Transaction) Existing(ctx context.Context, tables []string) ([]string, error) {
	missing, err := t.missing(ctx, t, tables)
	return slices.DeleteFunc(slices.Clone(tables), func(t string) bool { return slices.Contains(missing, t) }), err
}

func (t *Transaction) DateColumns(ctx context.Context) ([]Column, error) {
	all, err := t.columns(ctx, t, []string{InstanceTable})
	return slices.DeleteFunc(all, func(c Column) bool { return !c.Date }), err
}

// No table with another name is touched, even if omd_object_type names it.
var workflowTable = regexp.MustCompile(`^(?i:tb)_[0-9]+$`)

// WorkflowColumns are those of workflows whose names match. Names from omd_object_type are used only if the catalog has
// them, too. They may be in upper case, as in databases that came from Oracle. known: a name matches.
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
	tables, ambiguous, err := t.stored(ctx, tables)
	if err != nil {
		return nil, false, err
	}
	for _, group := range splitByCase(tables) {
		found, err := t.columns(ctx, t, group)
		if err != nil {
			return nil, false, err
		}
		columns = append(columns, found...)
	}
	instances := map[string]string{} // the columns with the process instance, by table
	for _, c := range columns {
		if c.Name == instanceColumn || (instances[c.Table] == "" && strings.EqualFold(c.Name, instanceColumn)) {
			instances[c.Table] = c.Name
		}
	}
	columns = slices.DeleteFunc(columns, func(c Column) bool { return instances[c.Table] == "" })
	for i, c := range columns {
		columns[i].Instance, columns[i].Ambiguous = c.Name == instances[c.Table], slices.Contains(ambiguous, c.Table)
	}
	return columns, known, err
}

// Groups have no names that differ only in case, of which MariaDB finds one.
func splitByCase(names []string) (groups [][]string) {
	before := map[string]int{} // the names so far, by their lower case
	for _, name := range names {
		i := before[strings.ToLower(name)]
		if before[strings.ToLower(name)]++; i == len(groups) {
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], name)
	}
	return groups
}

// stored returns the tables that names stand for in any case, and which of them are ambiguous: there are several, and
// none is spelled like its name. Names without a table are returned as they are.
func (t *Transaction) stored(ctx context.Context, names []string) (tables, ambiguous []string, err error) {
	var lower []string
	for _, name := range names {
		lower = append(lower, strings.ToLower(name))
	}
	spelled, err := t.tablesLike(ctx, t, lower)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		found := slices.DeleteFunc(slices.Clone(spelled), func(s string) bool { return !strings.EqualFold(s, name) })
		if len(found) == 0 || slices.Contains(found, name) {
			found = []string{name}
		}
		if len(found) > 1 {
			ambiguous = append(ambiguous, found...)
		}
		tables = append(tables, found...)
	}
	slices.Sort(tables)
	return slices.Compact(tables), ambiguous, nil
}
