// Package rpc connects the commands of internal/cli to a server: the flags of the server and its credentials, calls,
// pages of lists, and errors for people. All answers of a server are made printable. The demo uses it, too.
package rpc
