package sqlstate

import (
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleanupd/cleanupd/internal/connection"
)

// advice says what an operator can do about a persistent error, by SQLSTATE.
var advice = map[string]string{
	pgerrcode.ConnectionFailure: "see that the database server runs, and what lies between it and this service",
	pgerrcode.ForeignKeyViolation: "rows of another table refer to these by a foreign key: delete them " +
		"first, or give the key ON DELETE",
	pgerrcode.ReadOnlySQLTransaction: "the database is read-only: point --database-url at the primary " +
		"server, or turn default_transaction_read_only off where this is it",
	pgerrcode.IdleInTransactionSessionTimeout: "this process stood still for too long: give its machine more time to " +
		"run",
	pgerrcode.SerializationFailure: "others change the same rows all the time: run the cleanup at a quieter hour",
	pgerrcode.DeadlockDetected: "the application locks the same rows in another order: run the " +
		"cleanup at a quieter hour",
	pgerrcode.InvalidColumnReference: "where the table is published, the row filter or the " +
		"column list of the publication " +
		"needs other columns than its replica identity has: ALTER TABLE … REPLICA IDENTITY FULL, or change the publication",
	pgerrcode.InsufficientPrivilege: "the role lacks a right: have the table's owner GRANT it",
	pgerrcode.DiskFull: "the disk of the database server is full: make room there, and run the cleanup " +
		"again",
	pgerrcode.OutOfMemory: "the database server is out of memory: lower work_mem or its load, " +
		"and run the cleanup again",
	pgerrcode.TooManyConnections: "the database server has no connection left: raise max_connections or " +
		"close some",
	pgerrcode.ProtocolViolation:          pooled,
	pgerrcode.InvalidSQLStatementName:    pooled,
	pgerrcode.DuplicatePreparedStatement: pooled,
	pgerrcode.LockNotAvailable: "a session holds a lock for long: look for it in pg_locks, and run the " +
		"cleanup again",
	pgerrcode.QueryCanceled: "the statement took longer than it may: EXPLAIN it, as `cleanupd explain " +
		"TASK` prints it",
	pgerrcode.RaiseException: "a trigger or function of the application refuses: ask who wrote it",
	pgerrcode.DataCorrupted:  "the table is damaged: restore it from a backup",
	pgerrcode.IndexCorrupted: "an index is damaged: REINDEX the table, and run the cleanup again",
}

// pooled is the advice if the error is about a prepared statement or the protocol.
const pooled = "a pooler in transaction mode may lie between: connect to PostgreSQL itself, or to a pool in session " +
	"mode"

// Explain says, for operators, what happened and what can be done.
func Explain(err error) string {
	state := Of(err)
	if state == "" && Lost(err) && !errors.Is(err, connection.ErrCredentials) {
		state = pgerrcode.ConnectionFailure
	}
	text := Text(err)
	if what := advice[state]; what != "" {
		text += ": " + what
	}
	return text
}

func Text(err error) string {
	text := err.Error()
	if failed := (*pgconn.ConnectError)(nil); errors.As(err, &failed) {
		text = strings.Replace(text, failed.Error(), connectText(failed), 1)
	}
	if pgErr := (*pgconn.PgError)(nil); errors.As(err, &pgErr) && pgErr.Hint != "" {
		text += "; hint: " + pgErr.Hint
	}
	return text
}

// connectText leaves out attempts that failed for want of TLS, since pgx then tries without it, and repetitions of
// the same cause, unless nothing else went wrong.
func connectText(failed *pgconn.ConnectError) string {
	//nolint:errorlint // one that wraps it has its own text
	attempts, ok := failed.Unwrap().(interface{ Unwrap() []error })
	if !ok {
		return failed.Error()
	}
	var all, causes []string
	for _, attempt := range attempts.Unwrap() {
		text := attempt.Error()
		all = append(all, text)
		if !strings.HasSuffix(text, "server refused TLS connection") && !slices.Contains(causes, text) {
			causes = append(causes, text)
		}
	}
	if causes == nil {
		causes = all[:1]
	}
	prefix, _, _ := strings.Cut(failed.Error(), all[0])
	return strings.TrimSpace(prefix) + " " + strings.Join(causes, "; ")
}
