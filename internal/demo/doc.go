// Package demo shows the product on a private database server: it creates a Campaign database, or one of AEM Forms,
// starts the server of package serve on it, and runs a cleanup or erases a person's data. It needs PostgreSQL, which it
// downloads if none is installed, and MariaDB for --forms-engine mysql. Package main offers its command.
package demo
