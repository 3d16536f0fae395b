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

// Bounds of the steps of Stop, in their order.
const (
	drainSlack = 2 * time.Second // after the grace, for the answer of Drain and the last results
	exitWait   = 2 * time.Second // for the process to exit by itself
	termWait   = 3 * time.Second // for the process to exit after SIGTERM
)

// Stop ends the process in order: the plugin releases the items that have not begun, the others may go on for the grace
// and are then told to end; their results arrive as always. A process that does not exit then gets SIGTERM, at last
// SIGKILL, both for its whole group. Stop returns when the process is gone, at most about nine seconds after the grace.
// If ctx ends, the process is killed at once.
//
// It returns the ids of the items that the plugin did not end within the grace.
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
		p.wait(ctx, p.done, exitRead) // it has probably crashed, and Err should report that
	}
	if !p.wait(ctx, p.done, 0) {
		p.signal(syscall.SIGTERM)
		p.wait(ctx, p.done, termWait)
	}
	p.Kill()
	return res.GetUnfinished()
}

// Drained is a running or ended call of Drain.
type Drained struct {
	Done chan struct{} // closed when the plugin has answered or the call has failed
	res  *wire.DrainResponse
	err  error
}

// Drain tells the plugin to begin no more items, to release those that have not begun, and to end the others within
// grace. It does not wait. It happens once for a process: later calls return the first Drained.
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

// askToLeave tells the plugin to exit, by go-plugin's call for this. If the plugin does not have the call, it closes
// the plugin's stdin.
func (p *Proc) askToLeave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, exitWait)
	defer cancel()
	err := p.conn.Invoke(ctx, "/plugin.GRPCController/Shutdown", new(emptypb.Empty), new(emptypb.Empty))
	if status.Code(err) != codes.Unimplemented {
		return // it exits, or has exited before it could answer, or is frozen
	}
	p.mu.Lock()
	p.killed = p.killed || p.process.ended() == "" // its exit code does not matter then
	p.mu.Unlock()
	_ = p.process.stdin.Close()
}

// Kill kills the process and its group, and returns when Done is closed. It does nothing if the process has ended.
func (p *Proc) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// HangUp closes the plugin's stdin and connection, as the death of the host does, and does not stop the process. It is
// for tests, and for the checks of package conformance.
func (p *Proc) HangUp() {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	_ = p.process.stdin.Close()
	_ = p.conn.Close()
}

func (p *Proc) signal(sig syscall.Signal) {
	p.mu.Lock()
	if p.process.ended() == "" {
		p.killed = true
	}
	p.mu.Unlock()
	p.process.signal(sig)
}

// wait waits until done is closed, at most that long, and reports whether it is.
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
