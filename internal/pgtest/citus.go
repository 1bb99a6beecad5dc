package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
)

// citus is the cluster, which the first test that needs one starts.
var citus struct {
	start  sync.Once
	script string
	folder string   // empty if no cluster was started
	nodes  []string // ports, that of the coordinator first
	why    string   // the reason why there is no cluster
}

// citusDatabases limits how many databases exist at once, since each has background workers on each node.
var citusDatabases = make(chan struct{}, 2)

// Citus returns a database with the Campaign tables, all of them local, on the coordinator of a cluster with two
// workers. The cluster is started by the script that CITUS_CLUSTER names, or by shared/citus/citus-cluster next to
// the repository. If it cannot be started, the test is skipped with the reason.
func Citus(t testing.TB) *DB {
	t.Helper()
	citus.start.Do(startCitus)
	if citus.why != "" {
		t.Skip("no Citus cluster: " + citus.why)
	}
	citusDatabases <- struct{}{}
	t.Cleanup(func() { <-citusDatabases })
	db := &DB{t: t, Name: fmt.Sprintf("test_%d_%d", os.Getpid(), sequence.Add(1)), address: onCoordinator}
	join := "SELECT citus_set_coordinator_host('127.0.0.1', " + citus.nodes[0] + ")"
	for i, port := range citus.nodes {
		onNode(t, port, "postgres", "CREATE DATABASE "+db.Name+" OWNER "+campaigndb.Role)
		t.Cleanup(func() { onNode(t, port, "postgres", "DROP DATABASE "+db.Name+" WITH (FORCE)") })
		onNode(t, port, db.Name, "CREATE EXTENSION citus; GRANT ALL ON SCHEMA public TO "+campaigndb.Role)
		if i > 0 {
			join += ", citus_add_node('127.0.0.1', " + port + ")"
		}
	}
	alteringRoles.Lock()
	onNode(t, citus.nodes[0], db.Name, join)
	alteringRoles.Unlock()
	db.open(db.URL())
	db.Do(campaigndb.Schema)
	return db
}

// alteringRoles is locked while Citus alters roles, which all databases share: when a node is added, and when a
// table is distributed.
var alteringRoles sync.Mutex

func (db *DB) Distribute(table, column string) {
	db.t.Helper()
	alteringRoles.Lock()
	defer alteringRoles.Unlock()
	db.Do("SELECT create_distributed_table($1::text::regclass, $2, shard_count := 4)", table, column)
}

func startCitus() {
	citus.script = os.Getenv("CITUS_CLUSTER")
	if citus.script == "" {
		top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
		if err != nil {
			citus.why = "CITUS_CLUSTER names no script that starts one"
			return
		}
		citus.script = filepath.Join(strings.TrimSpace(string(top)), "../shared/citus/citus-cluster")
	}
	if _, err := os.Stat(citus.script); err != nil {
		citus.why = err.Error()
		return
	}
	var err error
	if citus.folder, err = os.MkdirTemp("", "citus-"); err != nil {
		citus.why = err.Error()
		return
	}
	_ = os.Chmod(citus.folder, 0o755) // the server's user must be able to enter it
	said, err := exec.Command(citus.script, "start", citus.folder).CombinedOutput()
	if err != nil {
		logs, _ := os.ReadFile(filepath.Join(citus.folder, "coordinator.log"))
		citus.why = fmt.Sprintf("%v: %s%s", err, said, logs)
		return
	}
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	if citus.nodes, err = nodePorts(lines[len(lines)-1]); err != nil {
		citus.why = err.Error()
	}
}

// nodePorts returns the ports of the nodes, the coordinator's first.
func nodePorts(coordinator string) ([]string, error) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, coordinator)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, "SELECT nodeport::text FROM pg_dist_node ORDER BY groupid")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func stopCitus() {
	if citus.folder != "" {
		_ = exec.Command(citus.script, "stop", citus.folder).Run()
	}
}

func onCoordinator(role, database string) string { return nodeURL(citus.nodes[0], role, database) }

func nodeURL(port, role, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%s/%s?sslmode=disable", role, port, database)
}

func onNode(t testing.TB, port, database, sql string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, nodeURL(port, "postgres", database))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
