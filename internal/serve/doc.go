// Package serve makes a running server from flags and environment variables: it checks the configuration, connects
// to the databases, and starts the listeners and the work on runs. It also has the commands that prepare or check a
// server on the server's own machine: migrate, adopt and health. Package main offers its commands; the demo starts
// its Server.
package serve
