// Package watch follows a run from a client: it receives the run's events, reconnects when the server is replaced, and
// prints progress, results and previews. The commands of internal/cli that start or watch runs use it, and the demo.
package watch
