package service_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service/access"
)

// Two tabs follow a run to its end, although the replica that executes it and serves the console is killed in the
// middle. Another replica takes over at the same address. Each event is shown once.
func TestConsoleSurvivesAKill(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	db := database(t)
	migrate(t, db)
	release := db.Sessions(1200)
	first, address := startReplica(t, db)
	var other atomic.Value // the address of the replica that takes over
	other.Store(address)
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", address },
		FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, network, address)
			if err != nil {
				conn, err = d.DialContext(ctx, network, other.Load().(string))
			}
			return conn, err
		}},
	})
	defer server.Close()

	p := browse(t, server.URL)
	p.cut = true
	p.open("#/preview", "Preview")
	p.press("Run without a preview …")
	p.press("Run now")
	p.sees("running since")
	q := p.another(p.evaluate("location.href"))
	q.cut = true
	q.sees("running since")
	db.Until("SELECT COALESCE(sum(rows_deleted), 0)::bigint FROM cleanupd.task")
	_, later := startReplica(t, db)
	other.Store(later)
	if err := errors.Join(first.Process.Kill(), first.Wait()); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatal(err)
	}
	release()
	if db.Int("SELECT count(*) FROM XtkSessionInfo") == 0 {
		t.Fatal("the run was through before its replica was killed")
	}
	const logged = "SELECT count(*) FROM cleanupd.event WHERE body ->> 'Kind' = 'log'"
	for _, tab := range []*tab{p, q} {
		tab.sees("succeeded ended", "1,200 rows")
		tab.hasSeen(db.Int("SELECT count(*) FROM cleanupd.event"))
		if shown := listedLines(tab); int64(shown) != db.Int(logged) {
			t.Errorf("it shows %d lines of %d", shown, db.Int(logged))
		}
	}
	if replicas := db.Int("SELECT count(DISTINCT generation) FROM cleanupd.event"); replicas != 2 {
		t.Errorf("%d replicas had the run", replicas)
	}
}

// A run whose replica is gone is shown as interrupted, also on a page that was opened before, until another replica
// takes it over.
func TestConsoleOfAnInterruptedRun(t *testing.T) {
	t.Parallel()
	suite.Only(t, suite.Browser)
	s := serveAs(t, database(t), true, nil, console(t, access.Config{}))
	release := s.db.Sessions(1200)
	first, _ := startReplica(t, s.db)
	p := browse(t, s.url)
	p.open("#/preview", "Preview")
	p.press("Run without a preview …")
	p.press("Run now")
	p.sees("running since", "sessions (task ")
	if err := errors.Join(first.Process.Kill(), first.Wait()); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatal(err)
	}
	const states = "[...document.querySelectorAll('td .badge')].map(b => b.textContent)" +
		".filter(s => /^(running|int)/.test(s))"
	interrupted := func() {
		t.Helper()
		p.sees("interrupted since", "A server resumes the run after its last committed batch.")
		p.until("so is its task", states+".join() === 'interrupted'")
	}
	interrupted()
	p.accessible(axe(t), "an interrupted run")
	p.evaluate("location.reload()")
	interrupted()
	startReplica(t, s.db)
	p.sees("running since")
	release()
	p.sees("succeeded ended", "1,200 rows deleted")
}
