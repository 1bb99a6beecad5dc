package purge

// FindAtOnce sets how many rows the engine finds at once.
func (e *Engine) FindAtOnce(n int) { e.findAtOnce = n }
