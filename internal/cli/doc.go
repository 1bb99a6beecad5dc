// Package cli has the commands that are clients of a server, one file a command: runs and what surrounds them. audit
// can also read the database itself; man and version need neither. Package forms has those about user data in AEM
// Forms. Package main offers the commands.
package cli
