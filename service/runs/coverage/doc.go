// Package coverage lists all tables of the database with their size, their growth and the tasks that cover them. It
// suggests a policy for large tables that no task covers. It uses the packages insight and growth, and package
// service calls it.
package coverage
