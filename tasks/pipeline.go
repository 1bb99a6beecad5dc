package tasks

import (
	"github.com/cleanupd/cleanupd/tasks/rules"
)

var Pipeline = []rules.Task{
	listsToDelete, deliveries, expiredDeliveries, mirrorPages, deliveryWorkTables, importRejects, workflowInstances,
	workflowLogins, orphanWorkTables, visitors, npai, subscriptions, trackingLogs, deliveryLogs, emailErrorStats,
	emailErrors, mxDomains, propositions, simulationTables, auditTrail, addresses, statistics, appSubscriptions,
	sessions, expiredEvents, reactions,
}

func Names() (names []string) {
	for _, t := range Pipeline {
		names = append(names, t.Name)
	}
	return names
}
