// Package service has the handlers of the API. Each translates a message into a call of the packages runs, userdata
// or campaign, and the result into a message. Package transport serves the handlers; it authenticates the callers
// and turns errors into statuses. Package serve builds both.
package service
