// Package gentle decides how long batches and the pauses after them are while other sessions use the server. It
// compares how long a small commit takes during batches and while no batch is open. Only its probe needs a database.
// Package throttle uses it.
package gentle
