// Package process names processes, and tells whether one of that name is gone: with all that it has started.
package process

import (
	"os"
	"sync"
)

// Variable is the variable, in the environment of all that a process starts to work items, that has
// the name of that process. A program that starts programs that start others passes it on.
const Variable = "LEDGERD_PROCESS"

// Name names a living process of this user among all that there have been on any machine: by the boot of the machine,
// the namespaces in which its number and its times count, its user, its number and when it began. It is "" where the
// system does not tell all of that (it is known on Linux).
func Name(pid int) string { return nameOf(pid) }

// This names this process.
func This() string { return this() }

var this = sync.OnceValue(func() string { return Name(os.Getpid()) })

// Gone reports whether the process of that name and number is known to be gone, with all that it has
// started and that has Variable in its environment. The caller must be on the same host, since the same boot, in the
// same namespaces and of the same user; any other doubt is a no. A process that is stopped or frozen is not gone.
func Gone(name string, pid int) bool { return name != "" && isGone(name, pid) }
