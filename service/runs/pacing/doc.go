// Package pacing changes the pace of active runs, pauses and resumes them, and applies the windows of the schedule.
// It uses the packages store, scheduler, worker and instance. Manager makes a Pacer for package service and calls
// its Tick periodically; workers read with each batch what the Pacer stores.
package pacing
