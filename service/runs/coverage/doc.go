// Package coverage lists all tables of the database: how large they are and how fast they grow, which tasks cover them,
// and a policy for those that nothing covers. It needs packages inventory and growth. Package service calls it.
package coverage
