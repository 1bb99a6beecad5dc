// Package processmanager is a client of the web service ProcessManager of an AEM Forms server, which terminates and
// purges process instances. It speaks SOAP 1.1 over HTTP, and checks responses strictly. The program creates a
// Client if the server's address is configured, and package userdata calls it.
package processmanager
