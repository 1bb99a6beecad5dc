package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Method is a way to delete.
type Method struct {
	Name string
	// statement deletes once. Empty: the service does it.
	statement string
	// limited says that the statement must be repeated until it deletes nothing.
	limited bool
	// tight says that the service uses one worker and small batches, and gives way to others.
	tight bool
	// from says that the statement has a parameter, the greatest key of the previous one, and returns keys.
	from bool
	// holds is how many holds of holdSize recipients the service has to respect.
	holds int
}

// holdSize is how many recipients a hold of the benchmark names, each of them with one log.
const holdSize = 1_000

// batch is how many rows the batched statements delete at once.
const batch = "5000"

// Methods are what is compared. The first is the baseline, the last two are the service.
var Methods = []Method{
	{Name: "one DELETE", statement: "DELETE FROM " + table + " WHERE " + old},
	{
		Name:      "IN (SELECT … LIMIT)",
		limited:   true,
		statement: "DELETE FROM " + table + " WHERE " + key + " IN (SELECT " + key + " FROM " + table + " WHERE " + old + " LIMIT " + batch + ")",
	},
	{
		Name:    "ORDER BY … LIMIT, SKIP LOCKED",
		limited: true,
		statement: "DELETE FROM " + table + " WHERE " + key + " IN (SELECT " + key + " FROM " + table +
			" WHERE " + old + " ORDER BY " + key + " LIMIT " + batch + " FOR UPDATE SKIP LOCKED)",
	},
	{
		Name:      "ctid, LIMIT",
		limited:   true,
		statement: "DELETE FROM " + table + " WHERE ctid = ANY (ARRAY(SELECT ctid FROM " + table + " WHERE " + old + " LIMIT " + batch + "))",
	},
	{
		Name:    "keyset",
		limited: true,
		from:    true,
		statement: "DELETE FROM " + table + " WHERE " + key + " IN (SELECT " + key + " FROM " + table +
			" WHERE " + key + " > $1 AND " + old + " ORDER BY " + key + " LIMIT " + batch + ") RETURNING " + key,
	},
	{Name: "cleanupd"},
	{Name: "cleanupd, giving way", tight: true},
}

// methods returns what is compared: with holds the service alone, without and with them.
func (o Options) methods() []Method {
	if o.Holds == 0 {
		return Methods
	}
	return []Method{
		{Name: "cleanupd"},
		{Name: fmt.Sprintf("cleanupd, %d holds of %d", o.Holds, holdSize), holds: o.Holds},
	}
}

// run executes the statement, once or until nothing is left or the context ends, and records how long each took.
func (m Method) run(ctx context.Context, url string, took *[]time.Duration) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for last := int64(0); ; {
		begun := time.Now()
		n, err := m.once(ctx, conn, &last)
		if err != nil || n == 0 {
			return err
		}
		*took = append(*took, time.Since(begun))
		if !m.limited {
			return nil
		}
	}
}

func (m Method) once(ctx context.Context, conn *pgx.Conn, last *int64) (int64, error) {
	if !m.from {
		var tag pgconn.CommandTag
		tag, err := conn.Exec(ctx, m.statement)
		return tag.RowsAffected(), err
	}
	rows, err := conn.Query(ctx, m.statement, *last)
	if err != nil {
		return 0, err
	}
	var id, n int64
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		*last, n = max(*last, id), n+1
		return nil
	})
	return n, err
}
