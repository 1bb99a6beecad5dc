// Package forms accesses the database of an AEM Forms server, in PostgreSQL or MySQL: its transactions, tables and
// process instances, and the service's own tables there, which hold the journal of erasures. The other packages of
// userdata write statements that both databases understand, with @names as arguments; a dialect provides the rest.
package forms
