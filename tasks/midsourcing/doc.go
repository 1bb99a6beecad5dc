// Package midsourcing handles the deliveries of a task that are also on mid-sourcing servers. They are deleted on
// the server first, retained, or deleted only in the main database and recorded. Packages execute and dryrun
// implement the interface Remote, which deletes or counts deliveries on a server.
package midsourcing
