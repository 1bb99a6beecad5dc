package runs

// What other packages do not call, and tests do.
var (
	TickPaces    = (*Manager).tickPaces
	AdvisoryLock = advisoryLock
)
