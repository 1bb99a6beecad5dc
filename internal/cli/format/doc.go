// Package format prints what a server answers: as a table for people, or as the API's JSON or YAML (--output). It also
// has the texts of values, such as durations and sizes. The commands of internal/cli use it; package terminal prints.
package format
