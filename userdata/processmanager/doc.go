// Package processmanager is a client of the web service ProcessManager of an AEM Forms server, which terminates and
// purges process instances. It speaks SOAP 1.1 over HTTP and trusts no response. The program makes a Client if the
// server's address is configured; package erasure calls it.
package processmanager
