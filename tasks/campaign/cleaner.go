package campaign

import "context"

// OtherCleaner reports whether the application's own cleanup workflow is started, which would also clean the
// database. It returns false if XtkWorkflow cannot be read.
func (c *Catalog) OtherCleaner(ctx context.Context, db Querier) (started bool, err error) {
	t := c.Table("XtkWorkflow")
	if t == nil || !t.Has("iWorkflowId", "sInternalName", "iState") {
		return false, nil
	}
	if hidden, err := t.Unreadable(ctx, db, "iworkflowid", "sinternalname", "istate"); err != nil || len(hidden) > 0 {
		return false, err
	}
	err = db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+t.Quoted()+" WHERE sInternalName = 'cleanup' AND iState <> "+
		"20 AND iWorkflowId <> 0)").
		Scan(&started)
	return started, err
}
