package main

import (
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// Runs and options read and write dates without a time zone in the zone that the application's option names.
func TestZoneOfTheApplication(t *testing.T) {
	t.Parallel()
	db := pgtest.Campaign(t)
	db.Do(
		`ALTER TABLE XtkOption ALTER tsTimeStampValue TYPE timestamp;
			ALTER TABLE XtkSessionInfo ALTER tsExpiration TYPE timestamp;
		INSERT INTO XtkOption (iOptionId, sName, iDataType, sStringValue, tsTimeStampValue) VALUES
			(1, 'WdbcTimeZone', 6, 'America/Bogota', NULL), (2, 'NmsCleanup_LastCleanup', 7, NULL, '2026-01-01 19:00');
		INSERT INTO XtkSessionInfo SELECT i, i, now() AT TIME ZONE 'America/Bogota' + i * interval '1 hour'
			FROM unnest('{-1, 1}'::int[]) i`,
	)
	r := startServer(t, "--database-url", db.URL())
	if code, out, errs := r.run(t, "options -o json"); code != 0 ||
		!strings.Contains(out, "2026-01-02T00:00:00Z") {
		t.Errorf("options: %d %s %s", code, out, errs)
	}
	code, out, errs := r.run(t, "run --task sessions --task npai -o json")
	if code != 0 || !strings.Contains(out, "America/Bogota") {
		t.Errorf("run: %d %s %s", code, out, errs)
	}
	if left := db.Strings("SELECT sKey FROM XtkSessionInfo"); len(left) != 1 || left[0] != "1" {
		t.Errorf("sessions left: %q", left)
	}
	if db.Int(
		"SELECT count(*) FROM XtkOption WHERE iOptionId = 2 AND tsTimeStampValue AT TIME ZONE 'America/Bogota' "+
			"BETWEEN now() - interval '10 minutes' AND now()",
	) != 1 {
		t.Errorf("the last cleanup was at %q",
			db.Strings("SELECT tsTimeStampValue::text FROM XtkOption WHERE iOptionId = 2"))
	}
}
