package purge

// Crowded has all workers begin at once.
func (e *Engine) Crowded() { e.crowded = true }

// FindAtOnce makes the engine find so many rows at once.
func (e *Engine) FindAtOnce(n int) { e.findAtOnce = n }
