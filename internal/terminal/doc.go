// Package terminal prints text and tables to a terminal, a file or a pipe, and asks questions. It prints texts that
// anyone may have chosen, such as names of tables, without control characters. It knows nothing of the service.
// Package main, the commands of internal/cli and internal/serve, and the demo use it.
package terminal
