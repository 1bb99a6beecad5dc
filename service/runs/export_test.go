package runs

// Exported for tests only.
var (
	TickPaces    = (*Manager).tickPaces
	ExpireTrash  = (*Manager).expireTrash
	AdvisoryLock = advisoryLock
)
