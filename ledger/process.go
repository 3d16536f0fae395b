package ledger

import (
	"os"
	"sync"
)

// ProcessVariable is the variable, in the environment of all that a process starts to work items, that has
// the name of that process. Who starts programs that start others passes it on.
const ProcessVariable = "LEDGERD_PROCESS"

// ThisProcess names this process among all that there have been on any machine, for Agent.Process: by the
// boot of the machine, the namespaces in which its number and its times count, its user, its number and when
// it began. It is "" where the system does not tell all of that (it is known on Linux).
func ThisProcess() string { return thisProcess() }

var thisProcess = sync.OnceValue(func() string { return processName(os.Getpid()) })

// Gone says whether the process of an agent is known to be gone, with all that it has started and that has
// ProcessVariable in its environment. Whoever asks must be on the same host, since the same boot, in the same
// namespaces and of the same user; whatever else keeps it from being known for certain is a no. A process that
// is stopped or frozen is not gone.
func (a Agent) Gone() bool {
	host, err := os.Hostname()
	return err == nil && a.Host == host && a.Process != "" && processGone(a.Process, a.PID)
}
