// Package rpc connects the commands of internal/cli to a server: the flags for the server and its credentials,
// calls, pages of lists, and errors for people. It makes all of a server's responses printable. The demo uses it,
// too.
package rpc
