package main

import (
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

func TestInclude(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do("INSERT INTO NmsBroadLogEventHisto (iBroadLogId, tsLastModified) VALUES (1, '2000-01-01'), (2, now())")
	for include, says := range map[string]string{
		"delivery-logs":               "TASK=TABLE",
		"=NmsBroadLogEventHisto":      "TASK=TABLE",
		"visitors=NmsVisitor":         "visitors",
		"delivery-logs=NmsNowhere":    "nmsnowhere",
		"delivery-logs=NmsDelivery":   "does not look like",
		"delivery-logs=public.NmsLog": "public.nmslog",
		"propositions=NmsVisitor":     "does not look like",
	} {
		code, out, errs := cleanupd(t, "serve", "--database-url", db.URL(), "--grpc-listen", "127.0.0.1:0",
			"--http-listen", "127.0.0.1:0", "--include", include)
		if code != 2 || out != "" || !strings.Contains(errs, "--include") || !strings.Contains(errs, says) ||
			strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: %d %s %s", include, code, out, errs)
		}
	}
	r := startServer(t, "--database-url", db.URL(), "--include", "delivery-logs=NmsBroadLogEventHisto")
	if code, out, errs := r.run(t, "run --task delivery-logs"); code != 0 ||
		db.Int("SELECT count(*) FROM NmsBroadLogEventHisto") != 1 {
		t.Errorf("%d %s %s", code, out, errs)
	}
}
