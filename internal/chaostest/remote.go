//go:build unix

package chaostest

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/internal/pgtest/cluster"
)

// remote reports whether the daemons of a fault reach the ledger only over HTTP.
func (f Fault) remote() bool { return f == RemoteKill || f == RemotePause || f == RemoteCut }

// remoteLedger is the HTTP API of a run's ledger: a server process, and a proxy in front of it that cuts and freezes
// connections.
type remoteLedger struct {
	port int // of the server
	slot int // of the server: the first after those of the daemons
	api  *daemon
	wire *wire
}

// startRemote serves the ledger of the run over HTTP.
func (r *run) startRemote() error {
	port, err := cluster.FreePort()
	if err != nil {
		return err
	}
	r.remote = &remoteLedger{port: port, slot: r.plan.Daemons}
	if r.remote.wire, err = newWire(tcp(r.remote.port)); err != nil {
		return err
	}
	r.closers = append(r.closers, r.remote.wire.close)
	return r.startAPI()
}

// startAPI starts the server, always at the same address.
func (r *run) startAPI() (err error) {
	r.remote.api, err = r.startArgs(r.remote.slot, nil, "api", "--auth", "none", "--listen", tcp(r.remote.port))
	return err
}

// killAPI kills the server and starts another.
func (r *run) killAPI() error {
	r.kill(r.remote.api)
	return r.startAPI()
}

// strikeRemote causes one fault of a run over HTTP.
func (r *run) strikeRemote(slot int, random *rand.Rand) error {
	server := random.IntN(4) == 0
	switch {
	case r.plan.Fault == RemoteKill && server:
		return r.killAPI()
	case r.plan.Fault == RemoteKill:
		return r.killOne(slot, random)
	case r.plan.Fault == RemotePause && server:
		r.freeze(r.remote.api, []int{r.remote.api.cmd.Process.Pid})
	case r.plan.Fault == RemotePause:
		r.pause(slot, random)
	default:
		r.remote.wire.strike(random)
	}
	return nil
}

// endRemote ends the server.
func (r *run) endRemote(ctx context.Context) {
	r.remote.api.signal(syscall.SIGCONT)
	if err := r.remote.api.stop(r.plan.bound(stopTime)); err != nil && ctx.Err() == nil {
		r.late(stopInTime, err)
	}
}

// wire is a proxy between clients and a server that breaks connections at any byte.
type wire struct {
	net.Listener
	calm  atomic.Bool  // the faults have stopped: no line stays frozen
	cuts  atomic.Int64 // cuts and freezes so far
	mu    sync.Mutex
	open  map[*line]bool
	lines sync.WaitGroup
}

// line is one connection through the wire.
type line struct {
	client, server net.Conn
	left           atomic.Int64 // bytes in one direction until the cut; below 0: no cut
	back           atomic.Bool  // left counts the bytes to the client, otherwise those to the server
	frozen         atomic.Int64 // until when nothing passes, CLOCK_MONOTONIC in nanoseconds
}

func newWire(server string) (*wire, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{Listener: l, open: map[*line]bool{}}
	w.lines.Go(func() { relay(l, server, w.start) })
	return w, nil
}

// url returns the URL at which clients reach the server.
func (w *wire) url() string { return "http://127.0.0.1:" + strconv.Itoa(w.Addr().(*net.TCPAddr).Port) }

func (w *wire) close() error {
	err := w.Listener.Close()
	w.mu.Lock()
	for l := range w.open {
		l.cut()
	}
	w.mu.Unlock()
	w.lines.Wait()
	return err
}

// start starts to forward in both directions.
func (w *wire) start(server, client net.Conn) {
	l := &line{client: client, server: server}
	l.left.Store(-1)
	w.mu.Lock()
	w.open[l] = true
	w.mu.Unlock()
	w.lines.Go(func() {
		var directions sync.WaitGroup
		directions.Go(func() { w.pass(l, server, client, false) })
		directions.Go(func() { w.pass(l, client, server, true) })
		directions.Wait()
		w.mu.Lock()
		delete(w.open, l)
		w.mu.Unlock()
	})
}

// pass forwards bytes in one direction until the line ends; back is the direction to the client.
func (w *wire) pass(l *line, to, from net.Conn, back bool) {
	defer l.cut()
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		for until := l.frozen.Load(); !w.calm.Load() && history.Now() < until; {
			time.Sleep(10 * time.Millisecond)
		}
		if left := l.left.Load(); left >= 0 && l.back.Load() == back {
			if int64(n) > left {
				_, _ = to.Write(buffer[:left]) // the other bytes are lost
				w.cuts.Add(1)
				return
			}
			l.left.Add(-int64(n))
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

// cut ends a line with a reset.
func (l *line) cut() {
	for _, c := range []net.Conn{l.client, l.server} {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		c.Close()
	}
}

// strike breaks some lines: at a byte of a request, at a byte of an answer, or by freezing them.
func (w *wire) strike(random *rand.Rand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.open {
		switch random.IntN(4) {
		case 0: // in one of the next requests, or between two
			l.back.Store(false)
			l.left.Store(int64(random.IntN(3000)))
		case 1: // in an answer, perhaps before its first byte
			l.back.Store(true)
			l.left.Store(int64(random.IntN(3000) * random.IntN(2)))
		case 2:
			w.cuts.Add(1)
			l.frozen.Store(history.Now() + int64(random.IntN(7000))*int64(time.Millisecond))
		}
	}
}
