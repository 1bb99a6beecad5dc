package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
)

type template struct {
	name string
	err  error // the error of its preparation
}

var (
	preparing sync.Mutex
	prepared  = map[string]*template{} // templates by the names given to Prepared
)

// Prepared returns a database that prepare has filled. prepare runs as the application's role, once for all
// databases of the same name, which is in lower case.
func Prepared(t testing.TB, name string, prepare func(ctx context.Context, conn *pgx.Conn) error) *DB {
	t.Helper()
	if whySkip != "" {
		t.Skip(whySkip)
	}
	preparing.Lock()
	if prepared[name] == nil {
		from := &template{name: fmt.Sprintf("template_%s_%d", name, os.Getpid())}
		from.err = from.prepare(context.Background(), prepare)
		prepared[name] = from
	}
	from := prepared[name]
	preparing.Unlock()
	if from.err != nil {
		t.Fatalf("prepare the template %s: %v", name, from.err)
	}
	return clone(t, from.name)
}

func (t *template) prepare(ctx context.Context, prepare func(ctx context.Context, conn *pgx.Conn) error) error {
	if _, err := admin.Exec(
		ctx, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s OWNER %s", t.name, emptyTemplate, campaigndb.Role),
	); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, address(campaigndb.Role, t.name))
	if err != nil {
		return err
	}
	return errors.Join(prepare(ctx, conn), conn.Close(ctx))
}
