package pluginproc

// Orphan is the process of a plugin without a host.
type Orphan struct {
	PID     int
	Command string
}
