package forms

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	// InstanceTable has a row for each process instance.
	InstanceTable = "tb_process_instance"
	// instanceColumn names the process instance that a row of a workflow's table belongs to.
	instanceColumn = "process_instance_id"
)

// Nothing can be found without requiredTables; storageTables exist if the document storage is in the database.
var (
	requiredTables = []string{
		"edcprincipalentity", "tb_task", "tb_assignment", "tb_queue", InstanceTable, "omd_object_type", "tb_form_data",
	}
	storageTables = []string{"tb_dm_chunk", "tb_dm_session_reference", "tb_dm_deletion"}
)

// CheckTables fails with ErrNotForms if tables are missing. With storage, it also checks the tables of the document
// storage.
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

func (t *Transaction) existing(ctx context.Context, tables []string) ([]string, error) {
	missing, err := t.missing(ctx, t, tables)
	return slices.DeleteFunc(slices.Clone(tables), func(t string) bool { return slices.Contains(missing, t) }), err
}

type Instance struct {
	ID         int64
	Invocation string // the long-lived invocation id
	Status     int32
}

// Complete and Terminated are the statuses of process instances that have ended.
const (
	Complete   = 2
	Terminated = 4
)

var EndedStatuses = []int64{Complete, Terminated}

func (i *Instance) Ended() bool { return i.Status == Complete || i.Status == Terminated }

// Instances returns the process instances that exist, by id. lock is the clause that locks their rows, or "".
func (t *Transaction) Instances(ctx context.Context, ids []int64, lock string) (map[int64]*Instance, error) {
	instances := map[int64]*Instance{}
	var in Instance
	query := "SELECT id, COALESCE(long_lived_invocation_id, ''), COALESCE(status, 0) FROM tb_process_instance " +
		"WHERE id IN (@ids) ORDER BY id" + lock
	err := t.Each(ctx, query, Args{"ids": ids}, []any{&in.ID, &in.Invocation, &in.Status}, func() {
		found := in
		instances[in.ID] = &found
	})
	return instances, err
}

// Instance returns nil if the process instance does not exist.
func (d *Database) Instance(ctx context.Context, id int64) (in *Instance, err error) {
	err = d.Snapshot(ctx, func(tx *Transaction) error {
		instances, err := tx.Instances(ctx, []int64{id}, "")
		in = instances[id]
		return err
	})
	return in, err
}

type Column struct {
	Table  string // the table's name as stored
	Quoted string // the table's name in a statement
	Name   string // the column's name as stored
	Type   string
	Cast   string // the type to compare an id in
	Number bool   // the column holds numbers
	Date   bool   // the column holds dates
	// Instance says that the column of a workflow's table names the process instance that a row belongs to.
	Instance bool
	// Ambiguous means that several tables match the name of a workflow's table.
	Ambiguous bool
}

func (t *Transaction) DateColumns(ctx context.Context) ([]Column, error) {
	all, err := t.columns(ctx, t, []string{InstanceTable})
	return slices.DeleteFunc(all, func(c Column) bool { return !c.Date }), err
}

// workflowTable matches the names of workflow tables. Other tables are never touched, even if omd_object_type names
// them.
var workflowTable = regexp.MustCompile(`^(?i:tb)_[0-9]+$`)

// WorkflowColumns returns the columns of the tables of workflows whose names match, and as known whether any name
// matches. It uses only tables that omd_object_type names and that exist. Their names may be in upper case, as in
// databases that came from Oracle.
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

// splitByCase splits names into groups in which no two names differ only in case: asked for both at once, MariaDB finds
// only one.
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

// stored returns the existing tables whose names match in any case, and which of them are ambiguous: several match
// the same name, and none is spelled exactly like it. Names without a table are returned as they are.
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
