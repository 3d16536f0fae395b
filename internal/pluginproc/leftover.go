package pluginproc

import "crypto/rand"

// markKey is the variable of the environment that marks all processes of one plugin process.
const markKey = "LEDGERD_MARK"

// newMark is a mark that no other plugin process has.
func newMark() string { return rand.Text() }
