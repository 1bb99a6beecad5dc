package connection

import (
	"context"

	"github.com/jackc/pgx/v5"
)

type zoneKey struct{}

// began is the key, in a connection's data, of the time zone that the connection began with.
const began = "the setting TimeZone at the beginning"

// InZone makes connections from a pool with Zone read and write dates without a time zone in this zone, named as in
// the setting TimeZone. "" means the zone that they began with.
func InZone(ctx context.Context, zone string) context.Context {
	return context.WithValue(ctx, zoneKey{}, zone)
}

// Zone is the PrepareConn of a pool: it sets the zone that InZone asks for.
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
