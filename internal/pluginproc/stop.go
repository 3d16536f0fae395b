package pluginproc

import (
	"context"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Bounds of the steps of Stop, each after the one before.
const (
	drainSlack = 2 * time.Second // beyond the grace, for the answer of Drain and the last results
	exitWait   = 2 * time.Second // for the process to leave by itself
	termWait   = 3 * time.Second // for it to leave after SIGTERM
)

// Stop ends the process in good order: items that were not begun are handed back, begun ones get
// grace and then the order to stop; results arrive as always. A process that does not leave then
// gets SIGTERM, and at last SIGKILL, each to its whole group. Stop returns when the process is
// gone: at most grace and about nine seconds later, at once when ctx ends.
//
// It returns the ids of items whose work did not end in time.
func (p *Proc) Stop(ctx context.Context, grace time.Duration) (unfinished []int64) {
	p.mu.Lock()
	stream := p.stream
	p.mu.Unlock()

	drain, cancel := context.WithTimeout(ctx, grace+drainSlack)
	defer cancel()
	d := p.Drain(grace)
	var res *wire.DrainResponse
	err := context.DeadlineExceeded
	select {
	case <-d.Done:
		res, err = d.res, d.err
	case <-drain.Done():
	}
	switch {
	case err == nil:
		if stream != nil {
			stream.Close()
			p.wait(drain, stream.Ended(), drainSlack)
		}
		p.askToLeave(ctx)
		p.wait(ctx, p.done, exitWait)
	case status.Code(err) == codes.Unavailable || status.Code(err) == codes.Canceled: // the connection broke, or is closed
		p.wait(ctx, p.done, exitRead) // it is dying by itself, most likely: that is to be seen
	}
	if !p.wait(ctx, p.done, 0) {
		p.signal(syscall.SIGTERM)
		p.wait(ctx, p.done, termWait)
	}
	p.Kill()
	return res.GetUnfinished()
}

// Drained is a call of Drain.
type Drained struct {
	Done chan struct{} // closed when it was answered, or there will be no answer
	res  *wire.DrainResponse
	err  error
}

// Drain asks the process to hand back what it has not begun and to end the rest within grace; it begins
// nothing any more. It happens once in the life of a process: later calls return the first. It does not wait.
func (p *Proc) Drain(grace time.Duration) *Drained {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopping = true
	if p.drained == nil {
		d := &Drained{Done: make(chan struct{})}
		p.drained = d
		go func() {
			defer close(d.Done)
			ctx, cancel := context.WithTimeout(context.Background(), grace+drainSlack)
			defer cancel()
			d.res, d.err = p.rpc.Drain(ctx, &wire.DrainRequest{GraceMs: grace.Milliseconds()})
		}()
	}
	return p.drained
}

// askToLeave is go-plugin's way to tell a plugin that it is over. For one that does not know it,
// the end of its stdin is the signal.
func (p *Proc) askToLeave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, exitWait)
	defer cancel()
	err := p.conn.Invoke(ctx, "/plugin.GRPCController/Shutdown", new(emptypb.Empty), new(emptypb.Empty))
	if status.Code(err) != codes.Unimplemented {
		return // it leaves, or has left before it could answer, or is frozen
	}
	p.mu.Lock()
	p.killed = p.killed || p.os.ended() == "" // whatever it exits with then
	p.mu.Unlock()
	_ = p.os.stdin.Close()
}

// Kill ends the process and its group at once and returns when it is gone. It does nothing to
// one that has ended.
func (p *Proc) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// HangUp does to the plugin what the host's death does to it: its stdin ends and its connection
// breaks, and it is not stopped. It is for checks.
func (p *Proc) HangUp() {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	_ = p.os.stdin.Close()
	_ = p.conn.Close()
}

func (p *Proc) signal(sig syscall.Signal) {
	p.mu.Lock()
	if p.os.ended() == "" {
		p.killed = true
	}
	p.mu.Unlock()
	p.os.signal(sig)
}

// wait waits for done, and reports whether it came.
func (p *Proc) wait(ctx context.Context, done <-chan struct{}, atMost time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(atMost):
	case <-ctx.Done():
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}
