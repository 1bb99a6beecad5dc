package userdata

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

// MySQL is a Forms database of MySQL or MariaDB. Its connections begin with settings that erasures need.
func MySQL(config *mysql.Config) (*Forms, error) {
	config = config.Clone()
	config.Params = maps.Clone(config.Params)
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	config.Params["innodb_lock_wait_timeout"] = strconv.Itoa(int(lockTimeout.Seconds()))
	config.Params["wait_timeout"] = strconv.Itoa(int(idleTimeout.Seconds())) // a frozen process does not keep its locks
	config.Params["autocommit"] = "1"
	config.Params["sql_mode"] = "'TRADITIONAL,ANSI_QUOTES'" // as expected here, whatever the server's is
	if err := config.Apply(mysql.Charset("utf8mb4", "")); err != nil {
		return nil, err
	}
	config.ClientFoundRows = true
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(mostConns)
	db.SetConnMaxIdleTime(idleTimeout / 2)
	return &Forms{db: db, dialect: mysqlDialect{}, close: func() { _ = db.Close() }}, nil
}

// idleTimeout is how long a session of MySQL may be idle, also in a transaction, and mostConns how many there are.
const (
	idleTimeout = 20 * time.Second
	mostConns   = 8
)

// mysqlDialect is the dialect of MySQL and MariaDB. Its own tables have the prefix cleanupd_.
type mysqlDialect struct{}

func (mysqlDialect) parameter(int) string { return "?" }

// literal is hexadecimal: what a backslash means depends on sql_mode.
func (mysqlDialect) literal(text string) string { return fmt.Sprintf("_utf8mb4 X'%X'", text) }

func (mysqlDialect) quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func (mysqlDialect) own(table string) string { return "cleanupd_" + table }

func (d mysqlDialect) schema() []string {
	list := ownTables(d, "char(36) CHARACTER SET ascii COLLATE ascii_bin", "longtext")
	for i := range list {
		list[i] += " ENGINE = InnoDB DEFAULT CHARSET = utf8mb4"
	}
	return list
}

// binary is a column of texts as bytes: collations take texts for the same that are not, and ignore blanks at their
// ends.
func binary(column string) string { return "CAST(CONVERT(" + column + " USING utf8mb4) AS BINARY)" }

// among implements dialect: the first condition can be answered by an index, the second is exact.
func (mysqlDialect) among(column, list string) string {
	return fmt.Sprintf("%[1]s IN (%[2]s) AND %[3]s IN (%[2]s)", column, list, binary(column))
}

func (mysqlDialect) same(a, b string) string {
	return fmt.Sprintf("%s = %s AND %s = %s", a, b, binary(a), binary(b))
}

// ids implements dialect. A text is not compared with a number, since '12 apples' is 12 then; a floating-point number
// is compared as a decimal one, since neighbours are the same otherwise.
func (d mysqlDialect) ids(c column, ids []int64) string {
	name := "r." + d.quote(c.Name)
	var numbers, texts []string
	for _, id := range ids {
		numbers, texts = append(numbers, strconv.FormatInt(id, 10)), append(texts, d.literal(strconv.FormatInt(id, 10)))
	}
	switch {
	case slices.Contains(mysqlTexts, c.Type):
		return d.among(name, strings.Join(texts, ", "))
	case slices.Contains(mysqlFloats, c.Type):
		name = "CAST(" + name + " AS DECIMAL(65, 10))"
	}
	return fmt.Sprintf("%s IN (%s)", name, strings.Join(numbers, ", "))
}

// Types that are searched, as numbers and as text.
var (
	mysqlNumbers = []string{"tinyint", "smallint", "mediumint", "int", "bigint", "decimal"}
	mysqlFloats  = []string{"float", "double"}
	mysqlTexts   = []string{
		"char",
		"varchar",
		"tinytext",
		"text",
		"mediumtext",
		"longtext",
		"json",
		"enum",
		"set",
		"uuid",
	}
)

func (d mysqlDialect) holds(c column) (condition, value string, ok bool) {
	value = d.quote(c.Name)
	switch {
	case c.Type == "float": // the nearest of its precision
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

// before implements dialect. A date without a zone is one of the server's. A timestamp is compared as it is stored: in
// local time, the hour that autumn repeats would be one.
func (d mysqlDialect) before(c column) string {
	name := "r." + d.quote(c.Name)
	if c.Type == "timestamp" {
		return fmt.Sprintf("UNIX_TIMESTAMP(%[1]s) > 0 AND UNIX_TIMESTAMP(%[1]s) < @cutoff", name)
	}
	return fmt.Sprintf("%[1]s >= FROM_UNIXTIME(0) AND %[1]s < FROM_UNIXTIME(@cutoff)", name)
}

func (d mysqlDialect) seconds(c column) string {
	return "CAST(FLOOR(UNIX_TIMESTAMP(r." + d.quote(c.Name) + ")) AS SIGNED)"
}

// lacking implements dialect. It fails if a user may not see whether there is a table, or if it will not do: what is in
// it would stay, or could not be rolled back.
func (d mysqlDialect) lacking(ctx context.Context, tx *transaction, tables []string) (missing []string, err error) {
	engines := map[string]string{}
	var name string
	var engine sql.NullString
	if err := tx.each(
		ctx,
		"SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = "+
			"'BASE TABLE' AND table_name IN (@tables)",
		args{"tables": tables},
		[]any{&name, &engine},
		func() { engines[name] = engine.String },
	); err != nil {
		return nil, err
	}
	for _, name := range tables {
		switch engine, there := engines[name]; {
		case there && engine != "InnoDB":
			return nil, fmt.Errorf(
				"%w that can be worked on: %s is not InnoDB, and what is deleted of %s cannot be rolled back",
				ErrNotForms,
				name,
				engine,
			)
		case there:
			continue
		}
		_, err := tx.exec(ctx, "SELECT 1 FROM "+d.quote(name)+" LIMIT 0", nil)
		switch {
		case err == nil:
			return nil, fmt.Errorf(
				"%w that can be worked on: %s is a view, and what is in it would stay",
				ErrNotForms,
				name,
			)
		case !mysqlerr.Is(err, mysqlerr.NoTable):
			return nil, fmt.Errorf(
				"whether there is a table %s cannot be told, and what is in it would stay: %w",
				name,
				err,
			)
		}
		missing = append(missing, name)
	}
	return missing, otherCase(ctx, tx, missing)
}

// otherCase fails if a table that is missing has a name in upper case, which a server with lower_case_table_names = 0
// takes for another one.
func otherCase(ctx context.Context, tx *transaction, missing []string) error {
	var name string
	var names []string
	if len(missing) == 0 {
		return nil
	}
	err := tx.each(
		ctx,
		"SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND LOWER(table_name) IN "+
			"(@tables) ORDER BY table_name",
		args{"tables": missing},
		[]any{&name},
		func() { names = append(names, name) },
	)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf(
			"%w that can be worked on: the names of its tables are in lower case, and those of %s are not, which "+
				"this server distinguishes (lower_case_table_names = 0): RENAME TABLE helps",
			ErrNotForms,
			strings.Join(names, ", "),
		)
	}
	return err
}

func (d mysqlDialect) columns(ctx context.Context, tx *transaction, tables []string) (list []column, err error) {
	tables, err = there(ctx, tx, tables)
	if err != nil {
		return nil, err
	}
	var c column
	err = tx.each(
		ctx,
		"SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = DATABASE() "+
			"AND table_name IN (@tables) ORDER BY table_name, ordinal_position",
		args{"tables": tables},
		[]any{&c.Table, &c.Name, &c.Type},
		func() {
			c.Quoted, c.Type = d.quote(c.Table), strings.ToLower(c.Type)
			c.Number = slices.Contains(mysqlNumbers, c.Type) || slices.Contains(mysqlFloats, c.Type)
			c.Date = slices.Contains(mysqlDates, c.Type)
			if strings.EqualFold(c.Name, instanceColumn) {
				c.Name = instanceColumn
			}
			list = append(list, c)
		},
	)
	return list, err
}

func (mysqlDialect) settings() []string { return nil }

// isolation implements dialect: a reading statement that locks also locks the gaps, so that nobody adds what it has not
// seen.
func (mysqlDialect) isolation() sql.IsolationLevel { return sql.LevelRepeatableRead }

// remove implements dialect. What it has read it has locked, so that it deletes just that.
func (mysqlDialect) remove(ctx context.Context, tx *transaction, m doomed, a args) (map[string]int64, error) {
	counts := map[string]int64{}
	var key any
	var seen int64
	if err := tx.each(
		ctx,
		fmt.Sprintf("SELECT %s FROM %s AS r WHERE %s FOR UPDATE", m.key, m.table, m.where),
		a,
		[]any{&key},
		func() {
			counts[textOf(key)]++
			seen++
		},
	); err != nil ||
		seen == 0 {
		return counts, err
	}
	gone, err := tx.exec(ctx, fmt.Sprintf("DELETE r FROM %s AS r WHERE %s", m.table, m.where), a)
	if err == nil && gone != seen {
		err = fmt.Errorf("%d rows were to be deleted, and %d were", seen, gone)
	}
	return counts, err
}

func (mysqlDialect) locking() string { return " FOR UPDATE" }

func (mysqlDialect) lockReferences(context.Context, *transaction) error { return nil }

func (mysqlDialect) transient(err error) bool { return mysqlerr.Is(err, mysqlerr.Transient) }

func (mysqlDialect) lost(err error) bool { return mysqlerr.Lost(err) || sqlstate.Lost(err) }

func (mysqlDialect) duplicate(err error) bool { return mysqlerr.Is(err, mysqlerr.Duplicate) }
