//go:build unix

package pluginproc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// A process may end long after its stream broke. If it exceeded a limit or exited by itself, this is the reason of its
// end, and not the stream.
func TestWhyKilled(t *testing.T) {
	ended := func(script string) *os.ProcessState {
		cmd := exec.Command("/bin/sh", "-c", script)
		_ = cmd.Run()
		return cmd.ProcessState
	}
	exited, killed := ended("exit 3"), ended("kill -KILL $$")
	stream, large := errors.New("its stream broke"), fmt.Errorf("its stream broke: %w", ErrTooLarge)
	for _, c := range []struct {
		state             *os.ProcessState
		over, fault, want error
	}{
		{killed, ErrLimit, nil, ErrLimit},
		{killed, ErrLimit, stream, ErrLimit},
		{killed, nil, stream, stream},
		{killed, nil, nil, nil},
		{exited, ErrLimit, stream, ErrLimit},
		{exited, nil, stream, nil},
		{exited, nil, large, large},
	} {
		p := &Proc{process: &process{state: c.state, over: c.over}, fault: c.fault}
		if got := p.whyKilled(); got != c.want {
			t.Errorf("%v, over %v, fault %v: %v, want %v", c.state, c.over, c.fault, got, c.want)
		}
	}
}
