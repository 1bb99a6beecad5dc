package connection

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// zoneKey is the context's key of a zone, and began the connection's key of the zone that it began with.
type zoneKey struct{}

const began = "the setting TimeZone at the beginning"

// InZone returns a context in which connections that Zone prepares read and write dates without a time zone in a zone, as the setting
// TimeZone has it; empty: in the zone that they began with.
func InZone(ctx context.Context, zone string) context.Context {
	return context.WithValue(ctx, zoneKey{}, zone)
}

// Zone is a PrepareConn: it gives the connection the zone of the context.
func Zone(ctx context.Context, conn *pgx.Conn) (ok bool, err error) {
	pg := conn.PgConn()
	now, known := pg.ParameterStatus("TimeZone"), pg.CustomData()
	if known[began] == nil {
		known[began] = now
	}
	zone, _ := ctx.Value(zoneKey{}).(string)
	if zone == "" {
		zone, _ = known[began].(string)
	}
	if zone == now {
		return true, nil
	}
	_, err = conn.Exec(ctx, "SELECT set_config('TimeZone', $1, false)", zone)
	return err == nil, err
}
