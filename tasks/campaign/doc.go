// Package campaign reads the layout of a Campaign Classic database on PostgreSQL: its schema, its tables and their
// keys, the families of logs, work tables, and the options in XtkOption.
package campaign

import "github.com/cleanupd/cleanupd/tasks/sqlexpr"

// Querier is implemented by connections, pools and transactions.
type Querier = sqlexpr.Querier
