// Package preview has the results of dry runs as they are stored: what a task would do, table by table, and what a
// later run must follow if the dry run becomes its saved plan. Package dryrun fills them in, package execute
// follows them, and the service stores and shows them.
package preview
