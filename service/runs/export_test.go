package runs

// What other packages do not call, and tests do.
var (
	TickPaces    = (*Manager).tickPaces
	ExpireTrash  = (*Manager).expireTrash
	AdvisoryLock = advisoryLock
)
