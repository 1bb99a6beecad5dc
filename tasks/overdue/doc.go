// Package overdue determines how long the oldest row of each table has been obsolete, without reading the tables.
package overdue
