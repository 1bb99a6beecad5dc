// Package forms has the command userdata: it finds and erases one person's data in AEM Forms, shows the receipts of
// erasures, and changes the rules that delete old process instances. It needs a server with a Forms database. Package
// main offers the command, and the demo runs it.
package forms
