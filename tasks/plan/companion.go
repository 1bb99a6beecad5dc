package plan

import (
	"fmt"

	"github.com/cleanupd/cleanupd/internal/severity"
	"github.com/cleanupd/cleanupd/tasks/campaign"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

// companion is what accompanies each row of a step; nil: nothing does. writes names it for people, if the rows may be
// changed without it.
func (c *compiler) companion(step Step) (also *purge.Companion, writes string) {
	before := len(c.args)
	switch {
	case step.Records && !c.DryRun:
		also = c.remoteRecord()
	case step.Entry != nil:
		also, writes = c.jobLogEntry(*step.Entry), "entries of the job log"
	}
	if also != nil {
		also.Args = c.args[before:]
	}
	return also, writes
}

// jobLogEntry is the statement that writes an entry of the job log for each row that asks for it. The row does not depend on
// the entry: one that cannot be written is reported.
func (c *compiler) jobLogEntry(e Entry) *purge.Companion {
	log := c.Catalog.Table("XtkJobLog")
	if log == nil || !log.Has("iJobLogId", "iJobId", "sMessage", "tsLog") {
		c.note(severity.Info, "table XtkJobLog, or a column of it, is missing: no entry is written")
		return nil
	}
	c.needsRights(log, "INSERT")
	ids, err := c.Catalog.NewIDs(log, "iJobLogId")
	if err != nil {
		c.note(severity.Warning, "no entry of the job log is written: %v", err)
		return nil
	}
	return &purge.Companion{
		Returning: fmt.Sprintf("r.%s AS job, r.%s AS asks", e.Job, e.If),
		SQL: fmt.Sprintf(
			"INSERT INTO %s (iJobLogId, iJobId, sMessage, tsLog) SELECT %s, gone.job, '%s', %s FROM gone WHERE "+
				"gone.asks <> 0",
			log.Quoted(),
			ids,
			e.Message,
			c.bind(c.Now, "timestamptz"),
		),
	}
}

// remoteRecord is the statement that records those of a batch's deliveries that stay on a mid-sourcing server: as part of
// the deletion, so that there is an entry for each of these and for no other.
func (c *compiler) remoteRecord() *purge.Companion {
	label := "''"
	if c.table.Has("sLabel") {
		label = "COALESCE(r.sLabel::text, '')"
	}
	if c.table.Missing("iDeliveryId", "iMidRemoteId", "iDeliveryProviderId") != nil {
		return nil
	}
	name, join := AccountOf(c.Catalog, "gone.provider")
	return &purge.Companion{
		Returning: "r.iDeliveryId::bigint AS here, r.iMidRemoteId::bigint AS there, r.iDeliveryProviderId AS provider, " + label + " AS label",
		SQL: c.Record(
			fmt.Sprintf(
				"SELECT %s AS account, gone.there, gone.here, gone.label FROM gone%s WHERE gone.there <> 0 AND "+
					"(gone.here IN (SELECT unnest(%s))) IS TRUE",
				name,
				join,
				c.bind(RemoteIDs{}, "bigint[]"),
			),
		),
	}
}

// AccountOf is the SQL of the name of the external account with an id, empty where there is none, and the join that it
// needs.
func AccountOf(catalog *campaign.Catalog, id string) (name, join string) {
	accounts := catalog.Table("NmsExtAccount")
	if accounts == nil || !accounts.Has("iExtAccountId", "sName") {
		return "''", ""
	}
	return "COALESCE(a.sName, '')", fmt.Sprintf(
		" LEFT JOIN %s AS a ON a.iExtAccountId = %s AND a.iExtAccountId <> 0",
		accounts.Quoted(),
		id,
	)
}
