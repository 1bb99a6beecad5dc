// Package mysqlerr distinguishes errors of MySQL and MariaDB by their numbers, as package sqlstate does for PostgreSQL.
package mysqlerr

import (
	"database/sql/driver"
	"errors"
	"slices"

	"github.com/go-sql-driver/mysql"
)

// These are error numbers of the server, by their meaning.
var (
	Transient = []uint16{1205, 1213, 3572} // lock wait timeout, deadlock, NOWAIT
	NoTable   = []uint16{1146}
	Duplicate = []uint16{1050, 1062} // a table, an entry
	// disk full, too many connections, shutdown, table full, read-only, killed
	lost   = []uint16{1021, 1040, 1053, 1114, 1290, 1317, 1927}
	denied = []uint16{1044, 1045, 1142, 1143, 1227}
)

func Is(err error, numbers []uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains(numbers, e.Number)
}

// Lost reports whether the server, or the connection to it, is currently unusable. Network errors are left to
// sqlstate.Lost.
func Lost(err error) bool {
	return Is(err, lost) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn)
}

func Denied(err error) bool { return Is(err, denied) }
