// Package service is the API: it turns messages into calls of package runs and of the options in package campaign,
// and what they return into messages and statuses. The REST gateway calls the same services in the same process.
package service
