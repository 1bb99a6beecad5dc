// Package midsourcing handles the deliveries of a task that are also on mid-sourcing servers: they are deleted there
// first, kept, or deleted only in the main database and recorded. How deliveries are deleted, or counted, on a server
// is behind the interface Remote, which packages execute and dryrun implement.
package midsourcing
