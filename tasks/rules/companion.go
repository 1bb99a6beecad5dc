package rules

import (
	"fmt"

	"github.com/cleanupd/cleanupd/internal/message"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
	"github.com/cleanupd/cleanupd/tasks/sqlexpr"
)

// companion returns the statement that accompanies each deletion or update, if any. writes describes the rows that it
// inserts, if rows may be changed without it; otherwise it is empty.
func (c *compiler) companion(step Step) (statement *purge.Companion, writes string) {
	switch {
	case step.Records && c.env.Record != nil && !c.env.DryRun:
		return c.remoteRecord(), ""
	case step.Entry != nil:
		return c.jobLogEntry(*step.Entry), "entries of the job log"
	}
	return nil, ""
}

// jobLogEntry returns a statement that writes an entry of the job log for each changed row that has one. If entries
// cannot be written, it adds a note and returns nil; rows are then changed without entries.
func (c *compiler) jobLogEntry(e Entry) *purge.Companion {
	log := c.env.Catalog.Table("XtkJobLog")
	if log == nil || !log.Has("iJobLogId", "iJobId", "sMessage", "tsLog") {
		c.plan.notef("table XtkJobLog, or a column of it, is missing: no entry is written")
		return nil
	}
	c.plan.requireRights(c.env, log, "INSERT")
	ids, err := c.env.Catalog.NewIDs(log, "iJobLogId")
	if err != nil {
		c.plan.note(message.JobLogNotWritten.With("table", c.table.Name, "error", err))
		return nil
	}
	return &purge.Companion{
		Returning: fmt.Sprintf("r.%s AS job, r.%s AS asks", e.Job, e.If),
		SQL: sqlexpr.Format(
			"INSERT INTO %s (iJobLogId, iJobId, sMessage, tsLog) OVERRIDING SYSTEM VALUE SELECT %s, gone.job, '%s', %s "+
				"FROM gone WHERE gone.asks <> 0",
			log.Quoted(),
			ids,
			e.Message,
			c.written(log, "tsLog", sqlexpr.Arg(c.env.Now, "timestamptz")),
		),
	}
}

// remoteRecord returns a statement that records which deleted deliveries are retained on a mid-sourcing server; nil if
// the table lacks the columns for it. It is part of the deletion, so each delivery is recorded exactly once.
func (c *compiler) remoteRecord() *purge.Companion {
	label := "''"
	if c.table.Has("sLabel") {
		label = "COALESCE(r.sLabel::text, '')"
	}
	if c.table.Missing("iDeliveryId", "iMidRemoteId", "iDeliveryProviderId") != nil {
		return nil
	}
	name, join := AccountOf(c.env.Catalog, "gone.provider")
	return &purge.Companion{
		Returning: "r.iDeliveryId::bigint AS here, r.iMidRemoteId::bigint AS there, r.iDeliveryProviderId AS " +
			"provider, " + label + " AS label",
		SQL: c.env.Record(sqlexpr.Format(
			"SELECT %s AS account, gone.there, gone.here, gone.label FROM gone%s WHERE gone.there <> 0 AND "+
				"(%s) IS TRUE",
			name,
			join,
			sqlexpr.In("gone.here", sqlexpr.Arg(RemoteIDs{}, "bigint[]")),
		)),
	}
}

// AccountOf returns the SQL of an external account's name, which is empty if the account is missing, and the join
// that it needs.
func AccountOf(catalog *campaign.Catalog, id string) (name, join string) {
	accounts := catalog.Table("NmsExtAccount")
	if accounts == nil || !accounts.Has("iExtAccountId", "sName") {
		return "''", ""
	}
	return "COALESCE(a.sName, '')", fmt.Sprintf(" LEFT JOIN %s AS a ON a.iExtAccountId = %s AND a.iExtAccountId <> 0",
		accounts.Quoted(), id)
}
