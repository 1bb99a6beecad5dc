// Package flags reads what every command of the program is given: arguments, addresses, the URL of a database, and
// files of certificate authorities. A mistake of the user is an Error, for which the program's exit status is 2.
// Packages cli, serve and demo use it for their commands.
package flags
