package smtp

// silent returns false: a plugin does not run here.
func (w *wire) silent() bool { return false }
