// Package grouptest checks for tests whether processes still exist.
package grouptest

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Patience is how long a test waits for an end that takes at most two seconds.
const Patience = time.Minute

// Gone waits until processes have ended.
func Gone(t testing.TB, pids ...int) {
	t.Helper()
	look := time.Tick(20 * time.Millisecond)
	late := time.After(Patience)
	for _, pid := range pids {
		for Alive(t, pid) {
			select {
			case <-look:
			case <-late:
				t.Fatalf("process %d is still there after %v", pid, Patience)
			}
		}
	}
}

// Alive reports whether a process exists and is no zombie.
func Alive(t testing.TB, pid int) bool {
	t.Helper()
	out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	stat := strings.TrimSpace(string(out))
	return stat != "" && stat[0] != 'Z'
}
