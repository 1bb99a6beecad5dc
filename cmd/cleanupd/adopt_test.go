package main

import (
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// listener returns an address and counts the connections that are opened to it.
func listener(t *testing.T) (address string, connections *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	connections = &atomic.Int64{}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			_ = conn.Close()
		}
	}()
	return l.Addr().String(), connections
}

// A copy of a database, under another name, deletes nothing and reaches no other server, until it is adopted.
func TestAdopt(t *testing.T) {
	t.Parallel()
	db := campaign(t)
	db.Do("INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2000-01-01' FROM generate_series(1, 30) i")
	db.Do(`INSERT INTO NmsExtAccount (iExtAccountId, sName, iActive) VALUES (1, 'far', 1);
		INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete, iDeliveryMode, iMidRemoteId,
			iDeliveryProviderId) VALUES (1, 1, '2000-01-01', 4, 7, 1)`)
	left := func() int64 { return db.Int("SELECT count(*) FROM XtkAudit") }
	production := startServer(t, "--database-url", db.URL(), "--instance", "production", "--schedule")
	if code, _, errs := production.run(t, "schedule set --cron", "0 4 * * *", "--enabled"); code != 0 {
		t.Fatal(errs)
	}
	if err := production.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = production.cmd.Wait()
	address, connections := listener(t)
	args := []string{
		"--database-url",
		db.URL(),
		"--instance",
		"test",
		"--schedule",
		"--mid-sourcing",
		"far=postgres://" + address + "/far",
		"--forms-database-url",
		"mysql://forms:x@" + address + "/forms",
	}
	r := startServer(t, args...)
	for _, c := range []string{
		"run", "options set broadLogPurgeDelayDays=90", "schedule set --cron 0_5_*_*_*", "userdata erase bob --yes",
	} {
		words := strings.Fields(c)
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "_", " ")
		}
		if code, out, errs := cleanupd(t, append(words, "--server", r.grpc)...); code != 1 || !strings.Contains(
			errs, `"production"`,
		) ||
			!strings.Contains(errs, "cleanupd adopt") {
			t.Errorf("%s: %d %s %s", c, code, out, errs)
		}
	}
	if code, out, errs := r.run(t, "run --dry-run --task audit-trail"); code != 0 ||
		!strings.Contains(out, "30 rows would be deleted") {
		t.Errorf("a dry run: %d %s %s", code, out, errs)
	}
	if left() != 30 || connections.Load() != 0 {
		t.Errorf("%d rows are left; %d connections were opened to other servers", left(), connections.Load())
	}
	if code, _, errs := cleanupd(t, "adopt", "--database-url", db.URL(), "--instance", "test"); code != 2 ||
		!strings.Contains(errs, "--yes") {
		t.Errorf("without a question: %d %s", code, errs)
	}
	if code, _, errs := cleanupd(t, "adopt", "--database-url", db.URL(), "--instance", " test"); code != 2 ||
		!strings.Contains(errs, "--instance") {
		t.Errorf("a bad name: %d %s", code, errs)
	}
	code, out, errs := cleanupd(t, "adopt", "--database-url", db.URL(), "--instance", "test", "--yes")
	if code != 0 || !strings.Contains(out, `instance "production"`) || !strings.Contains(out, `instance "test"`) ||
		!strings.Contains(out, "The schedule will be disabled.") {
		t.Errorf("adopt: %d %s %s", code, out, errs)
	}
	if code, out, errs := r.run(t, "schedule"); code != 0 ||
		(!strings.Contains(out, "disabled") && !strings.Contains(out, "no")) {
		t.Errorf("the schedule: %d %s %s", code, out, errs)
	}
	if code, out, errs := r.run(t, "run --task audit-trail --task deliveries"); code != 0 ||
		left() != 0 {
		t.Errorf("a run: %d %s %s", code, out, errs)
	}
	if db.Int("SELECT count(*) FROM NmsDelivery WHERE iDeliveryId = 1") != 1 || connections.Load() != 0 {
		t.Error("a delivery is purged here alone, though its mid-sourcing server is configured")
	}
}
