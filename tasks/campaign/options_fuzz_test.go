package campaign_test

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// Whatever row XtkOption has, a current delay is the stored one and at least a day. A stored value is read back
// unchanged.
func FuzzStoredOption(f *testing.F) {
	for _, number := range []int64{
		0,
		-1,
		1,
		30,
		86_399,
		86_400,
		86_401,
		2_147_483_647,
		2_147_483_648,
		9_223_372_036,
		9_223_372_037,
		18_446_744_074 + 100_000,
		math.MaxInt64,
		math.MinInt64,
	} {
		f.Add(number, "2026-01-01T00:00:00Z")
	}
	for _, when := range []string{
		"infinity", "-infinity", "epoch", "0044-03-15 BC", "0001-01-01Z", "9999-12-31T23:59:59.999999Z", "10000-01-01Z",
		"294276-12-31Z", "now", "allballs", "x",
	} {
		f.Add(int64(86_400), when)
	}
	db := pgtest.Campaign(f)
	db.Do(`ALTER TABLE XtkOption ALTER iLongValue TYPE bigint; INSERT INTO XtkOption (iOptionId, sName)
		SELECT i, name
			FROM unnest(ARRAY['NmsCleanup_VisitorPurgeDelay', 'XtkCleanup_NoStats',
			'NmsCleanup_LastCleanup']) WITH ORDINALITY AS o (name, i)`)
	catalog, err := campaign.LoadCatalog(f.Context(), db, campaign.Scope{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, number int64, when string) {
		if _, err := db.Exec(
			t.Context(), "UPDATE XtkOption SET iLongValue = $1, tsTimeStampValue = $2::text::timestamptz", number, when,
		); err != nil {
			t.Skip(err) // not in PostgreSQL's range
		}
		o, err := campaign.ReadOptions(t.Context(), db, catalog)
		if err != nil {
			t.Fatal(err)
		}
		if delay, err := o.Delay(campaign.VisitorPurge); err == nil &&
			(delay < campaign.Day || int64(delay/time.Second) != number) {
			t.Errorf("a delay of %d seconds is %s", number, delay)
		}
		if code, err := o.Statistics(); (err == nil && int64(code) != number) || code < 0 || code > 2 {
			t.Errorf("the code %d is %d, %v", number, code, err)
		}
		if m, err := o.Moment(campaign.LastCleanup); err != nil {
			t.Error(err)
		} else if m != nil {
			if err := timestamppb.New(*m).CheckValid(); err != nil {
				t.Errorf("%s cannot be returned to a caller: %v", when, err)
			}
			var same bool
			if err := db.QueryRow(t.Context(), "SELECT bool_and(CASE WHEN tsTimeStampValue > '9999-12-31' THEN $1 > "+
				"'9999-12-30'::timestamptz WHEN tsTimeStampValue < '0001-01-02' THEN $1 < '0001-01-03'::timestamptz "+
				"ELSE tsTimeStampValue = $1 END) FROM XtkOption", *m).
				Scan(&same); err != nil ||
				!same {
				t.Errorf("%s is read as %s, %v", when, m, err)
			}
		}
	})
}
