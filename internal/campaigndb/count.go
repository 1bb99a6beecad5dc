package campaigndb

import (
	"context"

	"github.com/jackc/pgx/v5"
)

type Count struct {
	Table string
	Rows  int64
}

// CountAll returns how many rows the tables of the schema public have, ordered by name.
func CountAll(ctx context.Context, conn *pgx.Conn) ([]Count, error) {
	rows, err := conn.Query(ctx, `
		SELECT relname::text, (xpath('/row/n/text()', query_to_xml(format('SELECT count(*) AS n FROM %s',
			oid::regclass), false, true, '')))[1]::text::bigint
		FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY 1`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Count])
}
