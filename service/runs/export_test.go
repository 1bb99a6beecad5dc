package runs

// Exported for tests only.
var (
	TickPauses   = (*Manager).tickPauses
	ExpireTrash  = (*Manager).expireTrash
	AdvisoryLock = advisoryLock
)
