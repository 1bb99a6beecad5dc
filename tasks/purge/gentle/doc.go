// Package gentle decides how small batches are, and how long the pauses after them, while other sessions use the
// server. It compares how long a small commit takes during batches and while no batch is open. Only its probe needs
// a database. Package throttle uses it.
package gentle
