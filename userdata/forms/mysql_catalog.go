package forms

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd/internal/mysqlerr"
)

// missing also fails if the user may not see whether a table exists, or if a table is unsuitable: rows behind a view
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
	return tx.Texts(
		ctx,
		"SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' "+
			"AND LOWER(table_name) IN (@names)",
		Args{"names": names},
	)
}

func (d mysqlDialect) columns(ctx context.Context, tx *Transaction, tables []string) (list []Column, err error) {
	tables, err = tx.Existing(ctx, tables)
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
