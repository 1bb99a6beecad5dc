// Package demo shows the product on a private database server: it creates a database of Campaign, of AEM Forms or of a
// shop, starts the server of package serve on it, and runs a cleanup, erases a person's data or applies policies. It
// needs PostgreSQL, which it downloads if none is installed, and MariaDB for --forms-engine mysql. Package main offers
// its command.
package demo
