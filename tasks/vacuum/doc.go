// Package vacuum determines which tables VACUUM and ANALYZE are run on, by which commands, and summarizes their output.
// Package execute runs them, and dryrun and explain show them.
package vacuum
