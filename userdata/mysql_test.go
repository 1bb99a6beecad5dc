package userdata_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/formsdb"
	"github.com/cleanupd/cleanupd/internal/localmysql"
	"github.com/cleanupd/cleanupd/internal/mysqltest"
	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/userdata"
)

// On a given server, with some process instances of a person.
func onServer(t *testing.T, server *localmysql.Server, charset string, seed uint64, inFiles bool) *fixture {
	t.Helper()
	db := mysqltest.On(t, server, charset)
	f := &fixture{
		t:      t,
		on:     onMySQL,
		db:     db,
		record: pgtest.Empty(t),
		data:   formsdb.Generate(rand.New(rand.NewPCG(seed, 0)), 60, inFiles),
	}
	if inFiles {
		f.folder = t.TempDir()
	}
	f.db.Do(formsdb.MySQLSchema)
	f.config = userdata.Config{
		Record:     f.record.Pool,
		Forms:      openMySQL(t, db.Config("root")),
		Folder:     f.folder,
		InDatabase: !inFiles,
	}
	if err := f.data.LoadMySQL(t.Context(), db.DB, f.folder); err != nil {
		t.Fatal(err)
	}
	f.open()
	return f
}

// Finding and erasing do not depend on the settings of a MySQL server.
func TestSettingsOfMySQL(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{
		"all": {
			"--lower-case-table-names=1", "--max-allowed-packet=256K",
			"--sql-mode=NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH", "--transaction-isolation=READ-UNCOMMITTED",
			"--autocommit=0", "--character-set-server=latin1",
		},
		"names": {"--lower-case-table-names=1", "--max-allowed-packet=256K", "--character-set-server=latin1"},
		"modes": {
			"--sql-mode=NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH", "--transaction-isolation=READ-UNCOMMITTED",
			"--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci", "--autocommit=0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Except(t, suite.Long, "all")
			t.Parallel()
			mysqltest.Empty(t, "utf8mb4") // skips without MariaDB
			server, err := localmysql.Start(t.Context(), settings...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Stop)
			for seed := range suite.Size[uint64](suite.Long, 3, 4) {
				f := onServer(t, server, []string{"latin1", "utf8mb4"}[seed%2], seed, seed < 2)
				f.work()
				user := formsdb.Users[seed]
				query := userdata.Query{UserID: user, Variables: allVariables}
				query.PrincipalIDs = f.find(query).Principals[:1]
				m := newModel(f.data, seed < 2)
				reasons, orphans := m.find(user, query.PrincipalIDs)
				var sure []int64
				for id, list := range reasons {
					if slices.ContainsFunc(list, func(r string) bool { return !strings.HasSuffix(r, " PART") }) {
						sure = append(sure, id)
					}
				}
				_, receipt := f.erase(userdata.Request{Query: &query})
				m.erase(sure, orphans)
				f.compare(m)
				if !receipt.Succeeded {
					t.Errorf("%+v", receipt)
				}
			}
		})
	}
}

// A user id, a session and a document are matched exactly, although the collations of MySQL treat Bob, bób and "bob "
// as equal to bob.
func TestExactlyOnMySQL(t *testing.T) {
	t.Parallel()
	for _, charset := range []string{"utf8mb4", "latin1"} {
		t.Run(charset, func(t *testing.T) {
			t.Parallel()
			f := &fixture{t: t, on: onMySQL, record: pgtest.Empty(t)}
			db := mysqltest.Empty(t, charset)
			f.db = db
			f.db.Do(formsdb.MySQLSchema)
			f.db.Do(
				`ALTER TABLE edcprincipalentity DROP PRIMARY KEY; INSERT INTO edcprincipalentity
					VALUES ('p1', 'bob'), ('P1', 'Bob'), ('p1 ', 'bob '), ('p3', 'BOB'), ('p4', 'bób');
				INSERT INTO tb_process_instance
					VALUES (1, 'one', 2), (2, 'two', 2), (3, 'three', 2), (4, 'four', 2), (5, 'five', 2), (6, 'six', 2);
				INSERT INTO tb_task
					VALUES (11, 1, 'p1', 1), (12, 1, 'P1', 2), (13, 1, 'p1 ', 3), (14, 1, 'P1', 0), (15, 1, 'p1', 0);
				INSERT INTO tb_queue VALUES (1, 'p1'), (2, 'P1'); INSERT INTO tb_assignment
					VALUES (1, 11, 2, 4), (2, 11, 1, 5);
				INSERT INTO omd_object_type
					VALUES ('pt_Loans/folder/sub/review', 'tb_102'), ('PT_LOANS/folder/sub/review', 'tb_101');
					INSERT INTO tb_102 VALUES (6, 'to Bob', 0), (6, 'Bob', 0), (4, 'bób', 0), (1, 'bob', 0);
				INSERT INTO tb_dm_chunk
					VALUES ('doc', 0, ''), ('DOC', 0, ''), ('doc ', 0, ''), ('two', 0, ''), ('other', 0, '');
				INSERT INTO tb_dm_session_reference
					VALUES ('doc', '_wfattach15'), ('DOC', '_WFATTACH15'), ('doc ', '_wfattach15 '), ('two',
					'_wfattach15'), ('two', '_wfattach15 ');
				INSERT INTO tb_dm_deletion VALUES ('_wfattach15'), ('_WFATTACH15')`,
			)
			f.config = userdata.Config{Record: f.record.Pool, Forms: openMySQL(t, db.Config("root")), InDatabase: true}
			f.open()
			f.work()
			query := userdata.Query{
				UserID:    "bob",
				Variables: []userdata.Variable{{Application: "Loans", Workflow: "folder/sub/review"}},
			}
			found := f.find(query)
			var instances []int64
			for _, in := range found.Instances {
				instances = append(instances, in.ID)
			}
			if !slices.Equal(found.Principals, []string{"p1"}) || !slices.Equal(instances, []int64{1, 5}) ||
				!slices.Equal(found.OrphanTasks, []int64{15}) {
				t.Errorf("%+v", found)
			}
			preview := f.preview(userdata.Request{Query: &query})
			_, receipt := f.erase(userdata.Request{Query: &query})
			if !receipt.Succeeded || fmt.Sprint(preview.Rows) != fmt.Sprint(receipt.Rows) {
				t.Errorf("preview: %+v; erasure: %+v", preview, receipt)
			}
			for query, want := range map[string][]string{
				"SELECT documentid || '.' FROM tb_dm_chunk ORDER BY documentid": {"DOC.", "doc .", "other.", "two."},
				"SELECT documentid || '.' || sessionid || '.' FROM tb_dm_session_reference": {
					"DOC._WFATTACH15.", "doc ._wfattach15 .", "two._wfattach15 .",
				},
				"SELECT sessionid FROM tb_dm_deletion":                 {"_WFATTACH15"},
				"SELECT '' || id FROM tb_task ORDER BY id":             {"12", "13", "14"},
				"SELECT '' || id FROM tb_process_instance ORDER BY id": {"2", "3", "4", "6"},
				"SELECT owner FROM tb_102 ORDER BY process_instance_id, CAST(owner AS BINARY)": {
					"bób", "Bob", "to Bob",
				},
			} {
				if got := f.db.Strings(query); !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", query, got, want)
				}
			}
		})
	}
}

// A table that cannot be rolled back, or that is a view, is refused.
func TestTablesThatWillNotDo(t *testing.T) {
	t.Parallel()
	f := newFormsOn(t, onMySQL, 1, 5, false)
	f.work()
	for change, c := range map[string]struct{ message, undo string }{
		"ALTER TABLE tb_task ENGINE = MyISAM": {"tb_task is not InnoDB", "ALTER TABLE tb_task ENGINE = InnoDB"},
		"ALTER TABLE tb_102 ENGINE = Aria":    {"tb_102 is not InnoDB", "ALTER TABLE tb_102 ENGINE = InnoDB"},
		"RENAME TABLE tb_task TO TB_TASK":     {"but TB_TASK do not", "RENAME TABLE TB_TASK TO tb_task"},
		// the table is optional
		"RENAME TABLE tb_task_acl TO Tb_Task_Acl": {
			"but Tb_Task_Acl do not", "RENAME TABLE Tb_Task_Acl TO tb_task_acl",
		},
		"ALTER TABLE tb_task_acl ENGINE = MyISAM": {
			"tb_task_acl is not InnoDB", "ALTER TABLE tb_task_acl ENGINE = InnoDB",
		},
		"RENAME TABLE tb_task TO other; CREATE VIEW tb_task AS SELECT * FROM other": {
			"tb_task is a view", "DROP VIEW tb_task; RENAME TABLE other TO tb_task",
		},
	} {
		f.db.Do(change)
		id, err := f.Start(t.Context(), userdata.Request{Instances: []int64{1}})
		if err == nil {
			_, receipt := f.watch(id)
			err = fmt.Errorf("%v", receipt.Problems)
		}
		if !strings.Contains(err.Error(), c.message) || f.db.Int("SELECT count(*) FROM tb_process_instance") != 5 {
			t.Errorf("%s: %v", change, err)
		}
		f.db.Do(c.undo)
	}
}
