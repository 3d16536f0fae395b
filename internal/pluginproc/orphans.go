package pluginproc

// Orphan is a plugin process whose host has ended.
type Orphan struct {
	PID     int
	Command string
}
