package pluginproc

import (
	"errors"
	"testing"
)

// TestLimitNotStream: a process that was over a limit, and whose stream was seen to break before it was gone, ended
// because of the limit.
func TestLimitNotStream(t *testing.T) {
	stream := errors.New("its stream broke")
	for _, c := range []struct{ over, fault, want error }{
		{ErrLimit, nil, ErrLimit},
		{ErrLimit, stream, ErrLimit},
		{nil, stream, stream},
		{nil, nil, nil},
	} {
		p := &Proc{os: &process{over: c.over}, fault: c.fault}
		if got := p.whyKilled(); got != c.want {
			t.Errorf("over %v, fault %v: %v", c.over, c.fault, got)
		}
	}
}
