package runs

import "fmt"

// Record implements tasks.Journal. A delivery has an entry already if its row was restored after an earlier run.
func (j *journal) Record(query string) string {
	return fmt.Sprintf(`INSERT INTO cleanupd.remote_delivery (account, remote_id, delivery_id, label, run_id)
		SELECT DISTINCT ON (account, there, here) account, there, here, label, '%s'::uuid FROM (%s) AS l
		ON CONFLICT (account, remote_id, delivery_id) DO UPDATE SET label = EXCLUDED.label, run_id = EXCLUDED.run_id, leave_time = EXCLUDED.leave_time`, j.claim.id, query)
}
