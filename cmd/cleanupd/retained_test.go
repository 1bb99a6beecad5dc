package main

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// A reason to retain rows has the same name everywhere: in SQL, JSON, metrics, messages and documents.
func TestRetainedRowsHaveOneName(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(`INSERT INTO XtkAudit (iAuditId, tsChanged) SELECT i, '2000-01-01' FROM generate_series(1, 40) i;
		INSERT INTO XtkSessionInfo (sKey, tsExpiration) VALUES ('old', '2000-01-01');
		INSERT INTO NmsDeliveryMapping (iDeliveryMappingId, sBroadLogSchema) VALUES (1, 'nms:broadLogRcp');
		INSERT INTO NmsDelivery (iDeliveryId, iDeleteStatus, tsDelete) VALUES (1, 1, '2000-01-01'), (2, 1, '2000-01-01');
		INSERT INTO NmsBroadLogRcp (iBroadLogId, iDeliveryId) SELECT i, 2 FROM generate_series(1, 40) i;
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';
		CREATE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER refuse BEFORE DELETE ON XtkAudit FOR EACH ROW WHEN (OLD.iAuditId = 1) EXECUTE FUNCTION refuse();
		CREATE TRIGGER suppress BEFORE DELETE ON XtkSessionInfo FOR EACH ROW EXECUTE FUNCTION suppress();
		CREATE TRIGGER refuse BEFORE DELETE ON NmsBroadLogRcp FOR EACH ROW WHEN (OLD.iBroadLogId = 1)
			EXECUTE FUNCTION refuse()`)
	db.Hold("SELECT FROM XtkAudit WHERE iAuditId = 3 FOR UPDATE")
	r := startServer(t, "--database-url", db.URL())
	for _, command := range []string{
		"holds create --deliveries 1 --reason test", "run --task audit-trail --task deliveries --task sessions",
	} {
		if code, _, errs := r.run(t, command); code != 0 {
			t.Fatalf("%s: %s", command, errs)
		}
	}
	_, shown, _ := r.run(t, "runs -o json")
	var list struct {
		Runs []struct {
			ID      string
			Results []struct {
				Task    string
				Details []struct{ Code, Text string }
			}
		}
	}
	var fields struct {
		Runs []struct{ Results []map[string]any }
	}
	for _, into := range []any{&list, &fields} {
		if err := json.Unmarshal([]byte(shown), into); err != nil {
			t.Fatal(err)
		}
	}
	_, text, _ := r.run(t, "runs show", list.Runs[0].ID)
	const end = "succeeded, 2 rows failed, 1 row locked, 1 row suppressed, 1 row dependent, 1 row on hold.\n"
	if !strings.Contains(text, " "+end) {
		t.Errorf("the run does not say that it %q, but\n%s", end, text)
	}
	if _, listed, _ := r.run(t, "runs"); !strings.Contains(listed, "  succeeded, 6 retained  ") {
		t.Errorf("the list of runs shows a plain success:\n%s", listed)
	}
	metrics := body(t, r.http+"/metrics")
	for _, task := range []string{"audit-trail", "deliveries", "sessions"} {
		for _, reason := range []string{"failed", "locked", "suppressed", "dependent", "on_hold"} {
			stored := db.Int("SELECT rows_"+reason+" FROM cleanupd.task WHERE name = $1", task)
			if want := map[string]int64{
				"audit-trail failed": 1, "audit-trail locked": 1, "sessions suppressed": 1,
				"deliveries failed": 1, "deliveries dependent": 1, "deliveries on_hold": 1,
			}[task+" "+reason]; stored != want {
				t.Errorf("%s: %d rows are stored as %s, want %d", task, stored, reason, want)
			}
			field := "rows" + camel(reason)
			for i, result := range list.Runs[0].Results {
				if result.Task != task {
					continue
				}
				if n, _ := strconv.ParseInt(fields.Runs[0].Results[i][field].(string), 10, 64); n != stored {
					t.Errorf("%s: %s is %d in JSON, %d in SQL", task, field, n, stored)
				}
				code := "RESULT_ROWS_" + strings.ToUpper(reason)
				said := false
				for _, d := range result.Details {
					said = said || d.Code == code && strings.Contains(text, d.Text) && named(d.Text, reason)
				}
				if said != (stored > 0) {
					t.Errorf("%s: people read of %s: %t; the messages are %+v, and the command line prints\n%s", task,
						reason, said, result.Details, text)
				}
			}
			sample := regexp.MustCompile(`cleanupd_rows_retained\{reason="` + reason + `",task="` + task + `"\} (\d+)`)
			if found := sample.FindStringSubmatch(metrics); found == nil || found[1] != strconv.FormatInt(stored, 10) {
				t.Errorf("%s: %s is %v in metrics, %d in SQL", task, reason, found, stored)
			}
		}
	}
}

// named reports whether a text has the reason, in any form of the verb.
func named(text, reason string) bool {
	return strings.Contains(text, strings.TrimSuffix(strings.ReplaceAll(reason, "_", " "), "ent"))
}

func camel(name string) (text string) {
	for part := range strings.SplitSeq(name, "_") {
		text += strings.ToUpper(part[:1]) + part[1:]
	}
	return text
}

func body(t testing.TB, url string) string {
	t.Helper()
	resp, err := http.Get(url) //nolint:noctx // the test's server answers
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
