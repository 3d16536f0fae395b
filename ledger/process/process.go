// Package process gives processes unique names, and reports whether the process with a name is gone, together with all
// processes that it has started.
package process

import (
	"os"
	"sync"
)

// Variable is an environment variable. A process that works items sets it to its own name for all processes that it
// starts, and these pass it on to the processes that they start.
const Variable = "LEDGERD_PROCESS"

// Name returns the name of a living process of this user. No other process on any machine has had the same name: it
// consists of the boot of the machine, the namespaces of process numbers and of times, the user, the process number and
// the time of the start. It is "" if the system does not provide all of these; Linux does.
func Name(pid int) string { return nameOf(pid) }

// This returns the name of this process.
func This() string { return this() }

var this = sync.OnceValue(func() string { return Name(os.Getpid()) })

// Gone reports whether the process with a name and number is known to be gone, together with the processes that it has
// started and that have Variable in their environment. It returns false in any doubt: the caller must be on the same
// host, in the same boot and namespaces, and the same user. A process that is stopped or frozen is not gone.
func Gone(name string, pid int) bool { return name != "" && isGone(name, pid) }
