// Package format prints a server's responses as a table for people, or as the API's JSON or YAML (--output). It also
// formats values such as durations and sizes. The commands of internal/cli use it; package terminal does the
// printing.
package format
