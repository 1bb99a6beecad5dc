// Package vacuum determines on which tables VACUUM and ANALYZE are run, and by which commands, and summarizes their
// output. Package execute runs the commands, and dryrun and explain show them.
package vacuum
