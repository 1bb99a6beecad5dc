package forms

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/cleanupd/cleanupd/internal/mysqlerr"
	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// MySQL returns a database in MySQL or MariaDB, and adds the settings that erasures need to a copy of the
// configuration.
func MySQL(config *mysql.Config) (*Database, error) {
	config = config.Clone()
	config.Params = maps.Clone(config.Params)
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	config.Params["innodb_lock_wait_timeout"] = strconv.Itoa(int(LockTimeout.Seconds()))
	config.Params["wait_timeout"] = strconv.Itoa(int(idleTimeout.Seconds())) // a frozen process does not keep its locks
	config.Params["autocommit"] = "1"
	config.Params["sql_mode"] = "'TRADITIONAL,ANSI_QUOTES'" // statements here rely on it
	if err := config.Apply(mysql.Charset("utf8mb4", "")); err != nil {
		return nil, err
	}
	config.ClientFoundRows = true
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(maxConns)
	db.SetConnMaxIdleTime(idleTimeout / 2)
	return &Database{db: db, dialect: mysqlDialect{}, close: func() { _ = db.Close() }}, nil
}

const (
	// idleTimeout is after how long the server closes an idle connection, even in a transaction.
	idleTimeout = 20 * time.Second
	maxConns    = 8
)

// mysqlDialect also serves MariaDB. The service's own tables have the prefix cleanupd_.
type mysqlDialect struct{}

func (mysqlDialect) parameter(int) string { return "?" }

// literal writes texts in hexadecimal, since the meaning of a backslash depends on sql_mode.
func (mysqlDialect) literal(text string) string { return fmt.Sprintf("_utf8mb4 X'%X'", text) }

func (mysqlDialect) Quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func (mysqlDialect) ownTable(table string) string { return "cleanupd_" + table }

func (d mysqlDialect) schema() []string {
	list := ownTables(d, "char(36) CHARACTER SET ascii COLLATE ascii_bin", "longtext")
	for i := range list {
		list[i] += " ENGINE = InnoDB DEFAULT CHARSET = utf8mb4"
	}
	return list
}

// binary makes comparisons use bytes, since collations treat different texts as equal and ignore trailing blanks.
func binary(column string) string { return "CAST(CONVERT(" + column + " USING utf8mb4) AS BINARY)" }

// in combines two conditions: the first can use an index, and the second is exact.
func (mysqlDialect) in(column, list string) string {
	return fmt.Sprintf("%[1]s IN (%[2]s) AND %[3]s IN (%[2]s)", column, list, binary(column))
}

func (mysqlDialect) same(a, b string) string {
	return fmt.Sprintf("%s = %s AND %s = %s", a, b, binary(a), binary(b))
}

// HasID does not compare texts with numbers, since '12 apples' would equal 12. It compares floating-point numbers as
// decimals, since adjacent ids would be equal otherwise.
func (d mysqlDialect) HasID(c Column, ids []int64) string {
	name := "r." + d.Quote(c.Name)
	var numbers, texts []string
	for _, id := range ids {
		numbers, texts = append(numbers, strconv.FormatInt(id, 10)), append(texts, d.literal(strconv.FormatInt(id, 10)))
	}
	switch {
	case slices.Contains(mysqlTexts, c.Type):
		return d.in(name, strings.Join(texts, ", "))
	case slices.Contains(mysqlFloats, c.Type):
		name = "CAST(" + name + " AS DECIMAL(65, 10))"
	}
	return fmt.Sprintf("%s IN (%s)", name, strings.Join(numbers, ", "))
}

// These types can be searched for a user id.
var (
	mysqlNumbers = []string{"tinyint", "smallint", "mediumint", "int", "bigint", "decimal"}
	mysqlFloats  = []string{"float", "double"}
	mysqlTexts   = []string{
		"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json", "enum", "set", "uuid",
	}
)

func (d mysqlDialect) Contains(c Column) (condition, value string, ok bool) {
	value = d.Quote(c.Name)
	switch {
	case c.Type == "float": // the nearest value of this precision
		return value + " = CAST(@user AS FLOAT)", value, true
	case c.Number:
		return value + " = @user", value, true
	case slices.Contains(mysqlTexts, c.Type):
		value = "CONVERT(" + value + " USING utf8mb4)"
		return "LOCATE(@user, " + value + " COLLATE utf8mb4_bin) > 0", value, true
	}
	return "", "", false
}

var mysqlDates = []string{"date", "datetime", "timestamp"}

// Before takes a date without a time zone to be in the server's. It compares a timestamp as stored, since the hour
// that is repeated in autumn is ambiguous in local time.
func (d mysqlDialect) Before(c Column) string {
	name := "r." + d.Quote(c.Name)
	if c.Type == "timestamp" {
		return fmt.Sprintf("UNIX_TIMESTAMP(%[1]s) > 0 AND UNIX_TIMESTAMP(%[1]s) < @cutoff", name)
	}
	return fmt.Sprintf("%[1]s >= FROM_UNIXTIME(0) AND %[1]s < FROM_UNIXTIME(@cutoff)", name)
}

func (d mysqlDialect) Seconds(c Column) string {
	return "CAST(FLOOR(UNIX_TIMESTAMP(r." + d.Quote(c.Name) + ")) AS SIGNED)"
}

func (mysqlDialect) settings() []string { return nil }

// isolation makes a locking read also lock the gaps, so that other sessions cannot add rows to its result.
func (mysqlDialect) isolation() sql.IsolationLevel { return sql.LevelRepeatableRead }

// delete first locks the rows that it reads, so that it deletes exactly those.
func (mysqlDialect) delete(
	ctx context.Context, tx *Transaction, table, condition, key string, a Args,
) (map[string]int64, error) {
	counts := map[string]int64{}
	var value any
	var selected int64
	query := fmt.Sprintf("SELECT %s FROM %s AS r WHERE %s FOR UPDATE", key, table, condition)
	err := tx.Each(ctx, query, a, []any{&value}, func() {
		counts[Text(value)]++
		selected++
	})
	if err != nil || selected == 0 {
		return counts, err
	}
	deleted, err := tx.Exec(ctx, fmt.Sprintf("DELETE r FROM %s AS r WHERE %s", table, condition), a)
	if err == nil && deleted != selected {
		err = fmt.Errorf("%d rows were selected, but %d were deleted", selected, deleted)
	}
	return counts, err
}

func (mysqlDialect) lockClause() string { return " FOR UPDATE" }

func (mysqlDialect) lockReferences(context.Context, *Transaction) error { return nil }

func (mysqlDialect) Transient(err error) bool { return mysqlerr.Is(err, mysqlerr.Transient) }

func (mysqlDialect) Lost(err error) bool { return mysqlerr.Lost(err) || sqlstate.Lost(err) }

func (mysqlDialect) duplicate(err error) bool { return mysqlerr.Is(err, mysqlerr.Duplicate) }

// missing also fails if the user cannot see whether a table exists, or if a table is unsuitable: rows behind a view
// would be retained, and changes outside InnoDB could not be rolled back.
func (d mysqlDialect) missing(ctx context.Context, tx *Transaction, tables []string) (missing []string, err error) {
	engines := map[string]string{}
	var name string
	var engine sql.NullString
	if err := tx.Each(
		ctx,
		"SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = "+
			"'BASE TABLE' AND table_name IN (@tables)",
		Args{"tables": tables}, []any{&name, &engine}, func() { engines[name] = engine.String },
	); err != nil {
		return nil, err
	}
	for _, name := range tables {
		switch engine, exists := engines[name]; {
		case exists && engine != "InnoDB":
			return nil, fmt.Errorf("%w that can be used: %s is not InnoDB, and deletes in %s cannot be rolled back",
				ErrNotForms, name, engine)
		case exists:
			continue
		}
		_, err := tx.Exec(ctx, "SELECT 1 FROM "+d.Quote(name)+" LIMIT 0", nil)
		switch {
		case err == nil:
			return nil, fmt.Errorf("%w that can be used: %s is a view, and the rows behind it would be retained",
				ErrNotForms, name)
		case !mysqlerr.Is(err, mysqlerr.NoTable):
			return nil, fmt.Errorf("cannot determine whether the table %s exists, and its rows would be retained: %w",
				name, err)
		}
		missing = append(missing, name)
	}
	return missing, checkCase(ctx, tx, missing)
}

// checkCase fails if a missing table exists with a name in upper case, which a server with lower_case_table_names =
// 0 distinguishes.
func checkCase(ctx context.Context, tx *Transaction, missing []string) error {
	var name string
	var names []string
	if len(missing) == 0 {
		return nil
	}
	err := tx.Each(
		ctx,
		"SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND LOWER(table_name) IN "+
			"(@tables) ORDER BY table_name",
		Args{"tables": missing}, []any{&name}, func() { names = append(names, name) },
	)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf(
			"%w that can be used: its tables have names in lower case, but %s do not, and this server distinguishes "+
				"them (lower_case_table_names = 0): use RENAME TABLE",
			ErrNotForms, strings.Join(names, ", "),
		)
	}
	return err
}

func (mysqlDialect) tablesLike(ctx context.Context, tx *Transaction, names []string) ([]string, error) {
	return tx.texts(
		ctx,
		"SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' "+
			"AND LOWER(table_name) IN (@names)",
		Args{"names": names},
	)
}

func (d mysqlDialect) columns(ctx context.Context, tx *Transaction, tables []string) (list []Column, err error) {
	tables, err = tx.existing(ctx, tables)
	if err != nil {
		return nil, err
	}
	var c Column
	err = tx.Each(
		ctx,
		"SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = DATABASE() "+
			"AND table_name IN (@tables) ORDER BY table_name, ordinal_position",
		Args{"tables": tables}, []any{&c.Table, &c.Name, &c.Type},
		func() {
			c.Quoted, c.Type = d.Quote(c.Table), strings.ToLower(c.Type)
			c.Number = slices.Contains(mysqlNumbers, c.Type) || slices.Contains(mysqlFloats, c.Type)
			c.Date = slices.Contains(mysqlDates, c.Type)
			list = append(list, c)
		},
	)
	return list, err
}
