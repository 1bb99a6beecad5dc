// Package formsdb generates AEM Forms databases and document storages. The demo and the tests load them.
package formsdb

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Schema is the SQL for PostgreSQL that creates the tables that userdata uses, and the tables of three workflows.
//
//go:embed schema.sql
var Schema string

// MySQLSchema needs the SQL mode ANSI_QUOTES.
var MySQLSchema = strings.NewReplacer(" bytea", " longblob", " numeric", " decimal(40, 10)", " text", " longtext").
	Replace(Schema)

type Table struct {
	Name    string
	Columns []string
	Rows    [][]any
}

type Data struct {
	Tables []*Table
	// Files are paths in the folder.
	Files []string
	rng   *rand.Rand
}

func (d *Data) Table(name string) *Table {
	for _, t := range d.Tables {
		if t.Name == name {
			return t
		}
	}
	return nil
}

func (t *Table) add(values ...any) { t.Rows = append(t.Rows, values) }

// Users are canonical names in a database. Some are parts of others.
var Users = []string{"ann", "joanna", "bob", "bob.smith@example.com", "4711", "o'neil", "x\"; DROP TABLE tb_task; --"}

// Generate makes as many orphan tasks as process instances. Documents are in files or, without inFiles, in tables.
func Generate(rng *rand.Rand, instances int, inFiles bool) *Data {
	d := &Data{rng: rng}
	for _, t := range []Table{
		{Name: "edcprincipalentity", Columns: []string{"id", "canonicalname"}},
		{Name: "tb_process_instance", Columns: []string{"id", "long_lived_invocation_id", "status"}},
		{Name: "tb_task", Columns: []string{"id", "start_task", "create_user_id", "process_instance_id"}},
		{Name: "tb_queue", Columns: []string{"id", "workflow_user_id"}},
		{Name: "tb_assignment", Columns: []string{"id", "task_id", "queue_id", "process_instance_id"}},
		{Name: "tb_form_data", Columns: []string{"id", "task_id"}},
		{Name: "tb_task_acl", Columns: []string{"task_id"}},
		{Name: "tb_task_attachment", Columns: []string{"task_id"}},
		{Name: "omd_object_type", Columns: []string{"name", "database_table"}},
		{Name: "tb_dm_chunk", Columns: []string{"documentid", "idx", "content"}},
		{Name: "tb_dm_session_reference", Columns: []string{"documentid", "sessionid"}},
		{Name: "tb_dm_deletion", Columns: []string{"sessionid"}},
		{Name: "tb_101", Columns: []string{"process_instance_id", "applicant", "amount", "form", "photo"}},
		{Name: "tb_102", Columns: []string{"process_instance_id", "owner", "number"}},
		{Name: "tb_103", Columns: []string{"process_instance_id", `Note "1"`}},
	} {
		d.Tables = append(d.Tables, &t)
	}
	for i, user := range Users {
		id := fmt.Sprintf("P%d", i)
		d.Table("edcprincipalentity").add(id, user)
		d.Table("tb_queue").add(int64(i+1), id)
	}
	d.Table("edcprincipalentity").add("P100", "bob") // the bob of another domain
	d.Table("tb_queue").add(int64(101), "P100")
	for _, row := range [][]any{
		{"pt_Loans/apply", "tb_101"},
		{"pt_Loans/folder/sub/review", "tb_102"},
		{"pt_Claims/apply", "tb_103"},
		{"pt_Loans/hostile", `tb_1"; DROP TABLE tb_task; --`},
		{"pt_Loans/none", "tb_task"},
		{"pt_Loans/gone", "tb_999"},
	} {
		d.Table("omd_object_type").add(row...)
	}
	var sessions []string
	for i := range instances {
		id := int64(i + 1)
		d.Table("tb_process_instance").
			add(id, fmt.Sprintf("invocation-%d", id), []int16{0, 1, 2, 2, 2, 4, 5}[rng.IntN(7)])
		for range rng.IntN(4) {
			sessions = append(sessions, d.task(id)...)
		}
		d.variables(id)
	}
	for range instances {
		sessions = append(sessions, d.task(0)...)
	}
	for _, number := range []int{12, 123, 1234} { // some are prefixes of others
		sessions = append(sessions, fmt.Sprintf("_wfattach%d", number))
	}
	d.documents(sessions, inFiles)
	return d
}

func (d *Data) principal() string {
	if d.rng.IntN(20) == 0 {
		return "P100"
	}
	return fmt.Sprintf("P%d", d.rng.IntN(len(Users)))
}

// task adds a task of the process instance, or an orphan task if it is 0, and returns the session ids of the task's
// documents.
func (d *Data) task(instance int64) (sessions []string) {
	id := int64(len(d.Table("tb_task").Rows) + 1)
	d.Table("tb_task").add(id, int16(d.rng.IntN(2)), d.principal(), instance)
	for range d.rng.IntN(3) {
		queue := int64(d.rng.IntN(len(Users)) + 1)
		d.Table("tb_assignment").add(int64(len(d.Table("tb_assignment").Rows)+1), id, queue, instance)
	}
	for range d.rng.IntN(3) {
		fd := int64(len(d.Table("tb_form_data").Rows) + 1)
		d.Table("tb_form_data").add(fd, id)
		sessions = append(sessions, fmt.Sprintf("_wftask%d", fd), fmt.Sprintf("_wftaskformid%d", fd),
			fmt.Sprintf("_wfattach%d", id))
	}
	for _, name := range []string{"tb_task_acl", "tb_task_attachment"} {
		for range d.rng.IntN(3) {
			d.Table(name).add(id)
		}
	}
	return sessions
}

func (d *Data) variables(instance int64) {
	user := Users[d.rng.IntN(len(Users))]
	texts := []string{
		user,
		"",
		"<name>" + user + "</name>",
		"to " + user + ", please",
		user + "2",
		"@" + user,
		"nobody",
	}
	text := func() any {
		if d.rng.IntN(8) == 0 {
			return nil
		}
		return texts[d.rng.IntN(len(texts))]
	}
	number := []int64{4711, 1, 47110}[d.rng.IntN(3)]
	if d.rng.IntN(2) == 0 {
		d.Table("tb_101").add(instance, text(), number, text(), []byte(user))
	}
	if d.rng.IntN(2) == 0 {
		d.Table("tb_102").add(instance, text(), number)
	}
	if d.rng.IntN(2) == 0 {
		d.Table("tb_103").add(instance, text())
	}
}

// documents adds the documents of the sessions. Several sessions refer to some of them.
func (d *Data) documents(sessions []string, inFiles bool) {
	for i := range sessions {
		guid := fmt.Sprintf("doc%06d", i)
		refer := []string{sessions[i]}
		for range d.rng.IntN(3) {
			refer = append(refer, sessions[d.rng.IntN(len(sessions))])
		}
		if d.rng.IntN(4) == 0 {
			refer = append(refer, fmt.Sprintf("_other%d", i))
		}
		folder := []string{"", "a/", "a/b/", "c/"}[d.rng.IntN(4)]
		if inFiles {
			d.Files = append(d.Files, folder+guid)
			if d.rng.IntN(5) == 0 {
				d.Files = append(d.Files, folder+guid+".other")
			}
			slices.Sort(refer)
			for _, s := range slices.Compact(refer) {
				d.Files = append(d.Files, folder+guid+".session"+s)
			}
			continue
		}
		for chunk := range d.rng.IntN(3) + 1 {
			d.Table("tb_dm_chunk").add(guid, int32(chunk), []byte("content"))
		}
		for _, s := range refer {
			d.Table("tb_dm_session_reference").add(guid, s)
		}
		if d.rng.IntN(3) == 0 {
			d.Table("tb_dm_deletion").add(refer[0])
		}
	}
}

// Load inserts the data in a database that has the schema, and writes the files to the folder.
func (d *Data) Load(ctx context.Context, conn *pgx.Conn, folder string) error {
	var names []string
	for _, t := range d.Tables {
		name := pgx.Identifier{t.Name}
		if _, err := conn.CopyFrom(ctx, name, t.Columns, pgx.CopyFromRows(t.Rows)); err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
		names = append(names, name.Sanitize())
	}
	_, err := conn.Exec(ctx, "ANALYZE "+strings.Join(names, ", "))
	return errors.Join(err, d.writeFiles(folder))
}

const rowsPerStatement = 500

func (d *Data) LoadMySQL(ctx context.Context, db *sql.DB, folder string) error {
	for _, t := range d.Tables {
		var columns []string
		for _, c := range t.Columns {
			columns = append(columns, "`"+strings.ReplaceAll(c, "`", "``")+"`")
		}
		row := "(?" + strings.Repeat(", ?", len(columns)-1) + ")"
		for rows := range slices.Chunk(t.Rows, rowsPerStatement) {
			statement := fmt.Sprintf("INSERT INTO %s (%s) VALUES %s%s", t.Name, strings.Join(columns, ", "), row,
				strings.Repeat(", "+row, len(rows)-1))
			if _, err := db.ExecContext(ctx, statement, slices.Concat(rows...)...); err != nil {
				return fmt.Errorf("%s: %w", t.Name, err)
			}
		}
	}
	return d.writeFiles(folder)
}

func (d *Data) writeFiles(folder string) error {
	for _, name := range d.Files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
			return err
		}
	}
	return nil
}
