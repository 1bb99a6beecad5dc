package purge

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Commit commits a batch, together with its counts. Bounds are checked first; then the ledger's statement is sent with
// the COMMIT, and fails if the batch must not be committed.
func (e *Engine) Commit(ctx context.Context, tx pgx.Tx, d Delta) error {
	release := func() {}
	if e.Bounds != nil {
		var err error
		if release, err = e.Bounds.Reserve(d); err != nil {
			return err
		}
	}
	b := &pgx.Batch{}
	settled, err := e.Ledger.Write(ctx, b, d)
	if err != nil {
		release()
		return err
	}
	b.Queue("COMMIT")
	err = tx.SendBatch(ctx, b).Close()
	if err != nil {
		release()
	}
	return settled(err)
}

const beginSQL = "BEGIN ISOLATION LEVEL READ COMMITTED"

// Begin begins a transaction on a separate connection.
func (e *Engine) Begin(ctx context.Context) (pgx.Tx, error) {
	conn, err := e.Pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx,
		pgx.TxOptions{BeginQuery: beginSQL + "; " + e.settings("SET LOCAL") + "; " + e.prologue()})
	if err != nil {
		conn.Release()
		return nil, err
	}
	return &transaction{Tx: tx, release: conn.Release}, nil
}

// InTx runs fn in a transaction on a separate connection. The transaction is rolled back unless fn has ended it.
func (e *Engine) InTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	tx, err := e.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	return fn(tx)
}

// transaction is a transaction that a statement ends: the COMMIT that is sent with the ledger.
type transaction struct {
	pgx.Tx
	release func()
	ended   bool // its connection may be in use by others
}

func (t *transaction) Rollback(ctx context.Context) error {
	if t.ended {
		return pgx.ErrTxClosed
	}
	t.ended = true
	defer t.release()
	if t.Conn().PgConn().TxStatus() == 'I' {
		return pgx.ErrTxClosed
	}
	return t.Tx.Rollback(ctx)
}
