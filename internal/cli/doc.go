// Package cli has the commands that are clients of a server, one file a command: runs and what surrounds them, and user
// data in AEM Forms. audit reads the database itself; man and version need neither. Package main offers the commands,
// and the demo runs those about user data.
package cli
