package campaign_test

import (
	"slices"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pgtest"
	"github.com/cleanupd/cleanupd/tasks/campaign"
)

// A trigger of a partitioned table is named once, and for a partition alone with the partition's name.
func TestTriggersOfPartitions(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	db.Superuser(`CREATE TABLE event (day date) PARTITION BY RANGE (day);
		CREATE TABLE event_old PARTITION OF event FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
		CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER counted AFTER DELETE ON event FOR EACH ROW EXECUTE FUNCTION counted()`)
	for table, want := range map[string]string{
		"event":     "counted of public.event (counted())",
		"event_old": "counted of public.event_old (counted())",
	} {
		oid := uint32(db.Int("SELECT '" + table + "'::regclass::oid::bigint"))
		if got, err := campaign.TriggersAsRole(t.Context(), db.Pool, oid, false); err != nil ||
			!slices.Equal(got, []string{want}) {
			t.Errorf("%s: got %q, %v", table, got, err)
		}
	}
}
