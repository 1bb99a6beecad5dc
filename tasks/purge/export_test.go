package purge

func (e *Engine) FindAtOnce(n int) { e.findAtOnce = n }
