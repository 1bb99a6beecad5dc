package tasks_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/pgtest"
)

// freshened has, by table, the assignments with which the application makes a row no longer obsolete. No foreign key
// refers to these tables.
var freshened = map[string]string{
	"XtkAudit":         "tsChanged = clock_timestamp()",
	"NmsVisitor":       "tsLastModified = clock_timestamp()",
	"NmsRtEvent":       "tsLastModified = clock_timestamp()",
	"NmsBatchEvent":    "tsLastModified = clock_timestamp()",
	"NmsTrackingStats": "tsStart = clock_timestamp(), iDeliveryId = 0",
	"XtkReject":        "tsLog = clock_timestamp(), iJobId = 0",
	"XtkWorkflowLog":   "tsLog = clock_timestamp()",
}

// firstNew is larger than all initial ids.
const firstNew = 1_900_000_000

type fate int

// The fates of a row.
const (
	fresh   fate = iota // the application wrote it, and it is not obsolete
	missing             // the row was missing when the application wrote it
	deleted             // the application deleted it
)

type row struct {
	table string
	key   int64
}

type application struct {
	db   *pgtest.DB
	rng  *rand.Rand
	m    *model
	done map[row]fate
	mu   sync.Mutex // locked while the application writes
}

// work writes rows until the context ends. It waits for a server that restarts.
func (a *application) work(ctx context.Context, t *testing.T) {
	var rows []row
	for _, table := range a.m.db.Tables {
		for name := range freshened {
			if a.m.db.Table(name) == table {
				for _, r := range table.Rows {
					if a.m.failing[&r[0]] { // the application cannot write it
						continue
					}
					rows = append(rows, row{name, rec{table, r}.int(table.Key)})
				}
			}
		}
	}
	next := int64(firstNew)
	for ctx.Err() == nil && len(rows) > 0 {
		r := rows[a.rng.IntN(len(rows))]
		if r.key == 0 {
			continue
		}
		what := a.rng.IntN(5)
		if _, touched := a.done[r]; touched && what != 0 {
			continue
		}
		key := a.m.db.Table(r.table).Key
		var err error
		a.mu.Lock()
		switch what {
		case 0: // a new row
			next++
			r = row{r.table, next}
			err = a.write(ctx, r, fresh, fmt.Sprintf("INSERT INTO %s (%s) VALUES (%d)", r.table, key, next),
				fmt.Sprintf("UPDATE %s SET %s WHERE %s = %d", r.table, freshened[r.table], key, next))
		case 1:
			err = a.write(ctx, r, deleted, fmt.Sprintf("DELETE FROM %s WHERE %s = %d", r.table, key, r.key))
		case 2: // a change that is rolled back, or a short lock: no effect
			err = a.lock(ctx, fmt.Sprintf("UPDATE %s SET %s WHERE %s = %d", r.table, freshened[r.table], key, r.key))
		default:
			err = a.write(ctx, r, fresh,
				fmt.Sprintf("UPDATE %s SET %s WHERE %s = %d", r.table, freshened[r.table], key, r.key))
		}
		a.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			t.Errorf("the application: %v", err)
			return
		}
		time.Sleep(time.Duration(a.rng.IntN(10)) * time.Millisecond)
	}
}

// lock changes a row, keeps it locked for a while, and rolls the change back.
func (a *application) lock(ctx context.Context, sql string) error {
	tx, err := a.db.Begin(ctx)
	if err != nil {
		return a.outlive(ctx)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, sql); err != nil {
		return a.outlive(ctx)
	}
	time.Sleep(time.Duration(a.rng.IntN(200)) * time.Millisecond)
	return nil
}

// write runs the statements in one transaction, and records the fate of the row. If the connection is lost, it looks up
// whether the transaction was committed.
func (a *application) write(ctx context.Context, r row, f fate, statements ...string) error {
	ctx = context.WithoutCancel(ctx) // a transaction that was begun is completed
	token, n := a.rng.Int64(), int64(0)
	err := pgx.BeginFunc(ctx, a.db, func(tx pgx.Tx) error {
		for _, sql := range statements {
			tag, err := tx.Exec(ctx, sql)
			if err != nil {
				return err
			}
			n = tag.RowsAffected()
		}
		_, err := tx.Exec(ctx, "INSERT INTO elsewhere.application VALUES ($1)", token)
		return err
	})
	if err != nil {
		committed := false
		for asked := false; !asked; {
			if outErr := a.outlive(ctx); outErr != nil {
				return fmt.Errorf("%w, after %w", outErr, err)
			}
			asked = a.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM elsewhere.application WHERE token = $1)", token).
				Scan(&committed) ==
				nil
		}
		if !committed {
			return nil
		}
	}
	if n == 0 {
		f = missing
	}
	a.done[r] = f
	return nil
}

// outlive waits until the server responds again.
func (a *application) outlive(ctx context.Context) error {
	deadline := time.Now().Add(time.Minute)
	for {
		a.db.Reset()
		err := a.db.Ping(ctx)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// adjust removes the rows that the application wrote from the model and from the database, and checks them separately.
func (a *application) adjust(t *testing.T) {
	t.Helper()
	for r, f := range a.done {
		table := a.m.db.Table(r.table)
		there := a.db.Int(fmt.Sprintf("SELECT count(*) FROM %s WHERE %s = %d", r.table, table.Key, r.key))
		obsolete := r.key < firstNew
		for i, row := range table.Rows {
			if (rec{table, row}).int(table.Key) == r.key {
				table.Rows = append(table.Rows[:i:i], table.Rows[i+1:]...)
				obsolete = false
				break
			}
		}
		switch {
		case f == fresh && there == 0:
			t.Errorf("%v is missing, although the application made it fresh", r)
		case f != fresh && there != 0:
			t.Errorf("%v exists again", r)
		case f == missing && !obsolete:
			t.Errorf("%v was deleted before the application wrote it, and is not obsolete", r)
		}
		if obsolete && f != missing {
			a.m.deleted--
		}
		a.db.Do(fmt.Sprintf("DELETE FROM %s WHERE %s = %d", r.table, table.Key, r.key))
	}
}
