package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/tasks/purge/pace"
)

type Method struct {
	Name string
	// statement deletes rows once. If it is empty, the service deletes the rows.
	statement string
	// after is a statement that is run afterwards, outside of a transaction.
	after string
	// limited is set if the statement is repeated until it deletes nothing.
	limited bool
	// from is set if the statement has the greatest key of the previous statement as its parameter, and returns keys.
	from  bool
	tight bool
	// pace is the service's pace; "" means pace.Balanced.
	pace pace.Pace
	// synchronous is set if each COMMIT waits for the disk, as by PostgreSQL's default, and each statement is a
	// transaction. Otherwise commits are asynchronous, and perCommit statements share a transaction, as with the
	// service.
	synchronous bool
	// holds is how many holds of holdSize recipients there are.
	holds int
	// undo is set if the trash keeps what is deleted.
	undo bool
}

// holdSize is how many recipients a hold of the benchmark names, each of them with one log.
const holdSize = 1_000

// limit is the most rows of a limited statement, the same as for the service.
const limit = "5000"

const perCommit = 4

var batched = []Method{
	{
		Name: "IN (SELECT … LIMIT)",
		statement: "DELETE FROM " + table + " WHERE " + key + " IN (SELECT " + key + " FROM " + table + " WHERE " + old +
			" LIMIT " + limit + ")",
	},
	{
		Name: "ORDER BY … LIMIT, SKIP LOCKED",
		statement: "DELETE FROM " + table + " WHERE " + key + " IN (SELECT " + key + " FROM " + table +
			" WHERE " + old + " ORDER BY " + key + " LIMIT " + limit + " FOR UPDATE SKIP LOCKED)",
	},
	{
		Name: "ctid, LIMIT",
		statement: "DELETE FROM " + table + " WHERE ctid = ANY (ARRAY(SELECT ctid FROM " + table + " WHERE " + old +
			" LIMIT " + limit + "))",
	},
	{
		Name: "keyset",
		from: true,
		statement: "DELETE FROM " + table + " WHERE " + key + " IN (SELECT " + key + " FROM " + table +
			" WHERE " + key + " > $1 AND " + old + " ORDER BY " + key + " LIMIT " + limit + ") RETURNING " + key,
	},
}

var Methods = allMethods()

// allMethods returns each batched statement with the service's kind of commits and with PostgreSQL's default, and
// the service at each pace, with synchronous commits, and with limits.
func allMethods() []Method {
	all := []Method{{Name: "one DELETE", statement: "DELETE FROM " + table + " WHERE " + old, synchronous: true}}
	for _, m := range batched {
		m.limited = true
		all = append(all, m)
		m.Name, m.synchronous = m.Name+", synchronous", true
		all = append(all, m)
	}
	return append(all, Method{Name: "cleanupd"}, Method{Name: "cleanupd, undo", undo: true},
		Method{Name: "cleanupd, synchronous", synchronous: true},
		Method{Name: "cleanupd, giving way", tight: true}, Method{Name: "cleanupd, gentle", pace: pace.Gentle},
		Method{Name: "cleanupd, fast", pace: pace.Fast})
}

func (o Options) methods(c Cell) []Method {
	switch {
	case o.Bursts > 0:
		return []Method{{Name: "cleanupd"}, {Name: "cleanupd, gentle", pace: pace.Gentle}}
	case c.Policy != "":
		return c.policyMethods()
	case o.Holds > 0:
		return []Method{
			{Name: "cleanupd"},
			{Name: fmt.Sprintf("cleanupd, %d holds of %d", o.Holds, holdSize), holds: o.Holds},
		}
	case len(o.Methods) > 0:
		others := func(m Method) bool { return m.Name != Methods[0].Name && !slices.Contains(o.Methods, m.Name) }
		return slices.DeleteFunc(slices.Clone(Methods), others)
	}
	return Methods
}

// run deletes the rows, and records in took how long each statement took.
func (m Method) run(ctx context.Context, url string, took *[]time.Duration) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	statements := 1
	if !m.synchronous {
		statements = perCommit
		if _, err := conn.Exec(ctx, "SET synchronous_commit = off"); err != nil {
			return err
		}
	}
	for last, done := int64(0), false; !done; {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			for i := 0; i < statements && !done; i++ {
				begun := time.Now()
				n, err := m.once(ctx, tx, &last)
				if err != nil {
					return err
				}
				if n > 0 {
					*took = append(*took, time.Since(begun))
				}
				done = n == 0 || !m.limited
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if m.after == "" {
		return nil
	}
	_, err = conn.Exec(ctx, m.after)
	return err
}

// once runs the statement once. last is the greatest key of the previous statement.
func (m Method) once(ctx context.Context, tx pgx.Tx, last *int64) (int64, error) {
	if !m.from {
		tag, err := tx.Exec(ctx, m.statement)
		return tag.RowsAffected(), err
	}
	rows, err := tx.Query(ctx, m.statement, *last)
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
