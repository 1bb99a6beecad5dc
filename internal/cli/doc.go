// Package cli has the commands that are clients of a server: runs and everything about them, one file per command.
// audit can also read the database directly; man and version need no server. Package forms has the commands about
// user data in AEM Forms. Package main offers the commands.
package cli
