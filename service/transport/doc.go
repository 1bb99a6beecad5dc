// Package transport serves the API on two listeners: gRPC, and HTTP with a REST gateway, the console, metrics and
// health. It stands between the network and the handlers of package service. It limits connections, requests and
// callers, identifies the caller, checks the role and the audit rule of each RPC, sets deadlines, ends calls that
// panic, and turns errors into statuses. Package service gives it the handlers; transport knows none of the
// packages below them.
package transport
