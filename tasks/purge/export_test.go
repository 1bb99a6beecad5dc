package purge

// FindAtOnce makes the engine find so many rows at once.
func (e *Engine) FindAtOnce(n int) { e.findAtOnce = n }
