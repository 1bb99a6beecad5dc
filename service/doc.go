// Package service is the API: it translates messages into calls of packages runs and userdata, and of the options in
// package campaign, and their results into messages and statuses. The REST gateway calls the same services in the same
// process.
package service
