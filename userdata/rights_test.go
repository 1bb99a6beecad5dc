package userdata_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/formsdb"
	"github.com/cleanupd/cleanupd/internal/mysqltest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/userdata"
)

// file is in deploy.
func grants(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile("../deploy/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^GRANT .*;$`).FindAllString(string(text), -1)
}

// With documents in it, opened by a user with only these grants.
func asGranted(t *testing.T, on engine, without string) *fixture {
	t.Helper()
	f := newFormsOn(t, on, 3, 30, false)
	switch on {
	case onPostgres:
		role := f.record.Role("forms")
		f.db.Do("REVOKE ALL ON SCHEMA public FROM public")
		granted := slices.DeleteFunc(grants(t, "forms-postgres.sql"),
			func(grant string) bool { return grant == without })
		f.record.Superuser(strings.ReplaceAll(strings.Join(granted, "\n"), " TO cleanupd;", " TO "+role+";"))
		f.config.Forms = openPostgres(t, f.record.For(role).Pool)
	case onMySQL:
		db := f.db.(*mysqltest.DB)
		user := db.Name + "_user"
		db.Do("CREATE USER '" + user + "'@'localhost'")
		t.Cleanup(func() { db.Super("DROP USER '" + user + "'@'localhost'") })
		for _, grant := range grants(t, "forms-mysql.sql") {
			if grant != without {
				db.Do(strings.NewReplacer(" ON forms.", " ON "+db.Name+".", "'cleanupd'", "'"+user+"'").Replace(grant))
			}
		}
		f.config.Forms = openMySQL(t, db.Config(user))
	}
	f.Manager = userdata.New(f.config)
	return f
}

// The rights that the files in deploy grant are sufficient for all calls, and none of them is unnecessary.
func TestRights(t *testing.T) {
	onBoth(t, func(t *testing.T, on engine) {
		file := map[engine]string{onPostgres: "forms-postgres.sql", onMySQL: "forms-mysql.sql"}[on]
		all := grants(t, file)
		if len(all) < 15 {
			t.Fatalf("%d grants", len(all))
		}
		every := suite.Size(suite.Long, 6, 1)
		for i, without := range append([]string{""}, all...) {
			if i%every != 0 {
				continue
			}
			t.Run(without, func(t *testing.T) {
				t.Parallel()
				f := asGranted(t, on, without)
				if err := f.allWorks(); (err == "") != (without == "") {
					t.Errorf("the error is %q", err)
				}
			})
		}
	})
}

// Uses a Forms database in every way, and returns the first problem.
func (f *fixture) allWorks() string {
	if err := f.config.Forms.Migrate(f.t.Context()); err != nil {
		return err.Error()
	}
	query := userdata.Query{UserID: formsdb.Users[0], Variables: allVariables}
	if _, err := f.Find(f.t.Context(), query); err != nil {
		return err.Error()
	}
	var instances, tasks []int64
	for _, row := range f.data.Table("tb_process_instance").Rows {
		instances = append(instances, row[0].(int64))
	}
	for _, row := range f.data.Table("tb_task").Rows {
		if row[3] == int64(0) {
			tasks = append(tasks, row[0].(int64))
		}
	}
	request := userdata.Request{Instances: instances, Tasks: tasks}
	var preview *userdata.Receipt
	if err := f.Preview(f.t.Context(), request, func(e userdata.Event) error {
		preview = e.Receipt
		return nil
	}); err != nil {
		return err.Error()
	}
	id, err := f.Start(f.t.Context(), request)
	if err != nil {
		return err.Error()
	}
	problem := make(chan string, 1)
	stop := f.workAnd(firstWarning(problem))
	defer stop()
	ended := make(chan *userdata.Receipt, 1)
	go func() {
		if receipt, err := f.Watch(f.t.Context(), id, func(userdata.Event) error { return nil }); err == nil {
			ended <- receipt
		}
	}()
	select {
	case text := <-problem:
		return text
	case receipt := <-ended:
		if !receipt.Succeeded {
			return strings.Join(receipt.Problems, "; ")
		}
		if left := f.db.Int(
			"SELECT count(*) FROM tb_task",
		); left > 0 || receipt.Rows["tb_task"] != preview.Rows["tb_task"] ||
			!slices.Equal(receipt.Instances, instances) {
			return "rows are left"
		}
	case <-time.After(2 * time.Minute):
		f.t.Fatal("the erasure neither ended nor met a problem")
	}
	return ""
}
