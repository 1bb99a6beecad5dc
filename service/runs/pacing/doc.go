// Package pacing changes the pace of active runs, pauses and resumes them, and applies the windows of the schedule. It
// needs packages store, scheduler, worker and instance. Manager makes a Pacer for package service and calls its Tick
// again and again; workers read what it stores with each batch.
package pacing
