// Package service is the API: it turns messages into calls of packages runs and userdata, and of the options in package campaign,
// and what they return into messages and statuses. The REST gateway calls the same services in the same process.
package service
