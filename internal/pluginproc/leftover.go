package pluginproc

import "crypto/rand"

// markKey is the variable of the environment that marks all processes of one plugin process.
const markKey = "LEDGERD_MARK"

// newMark returns a random mark, unique to one plugin process.
func newMark() string { return rand.Text() }
