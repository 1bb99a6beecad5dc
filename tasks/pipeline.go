package tasks

// Pipeline is every task in the order of a run.
var Pipeline = []Task{
	importRejects,
	workflowLogins,
	visitors,
	npai,
	subscriptions,
	trackingLogs,
	deliveryLogs,
	emailErrors,
	mxDomains,
	propositions,
	auditTrail,
	addresses,
	statistics,
	appSubscriptions,
	sessions,
	expiredEvents,
	reactions,
}
