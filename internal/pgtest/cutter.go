package pgtest

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// Where a [Cutter] breaks a connection.
const (
	CutNowhere int32 = iota
	CutLanded        // the COMMIT takes effect, but the client gets no answer
	CutBefore        // the server does not get the COMMIT
)

// Cutter is a proxy in front of the shared server that breaks a connection at a COMMIT.
type Cutter struct {
	URL string // [URL], through the proxy

	listener net.Listener
	server   string
	next     atomic.Int32 // where to break the connection of the next client that commits
	conns    sync.WaitGroup
}

// NewCutter starts a proxy. The end of the test waits for the end of all connections through it, so close them before.
func NewCutter(t testing.TB) *Cutter {
	t.Helper()
	u, err := url.Parse(URL(t))
	must.OK(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	c := &Cutter{listener: l, server: u.Host}
	u.Host = l.Addr().String()
	c.URL = u.String()
	c.conns.Go(c.serve)
	t.Cleanup(func() {
		l.Close()
		c.conns.Wait()
	})
	return c
}

// Cut breaks the connection of the next client that commits: CutLanded or CutBefore.
func (c *Cutter) Cut(where int32) { c.next.Store(where) }

func (c *Cutter) serve() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.server)
		if err != nil {
			client.Close()
			return
		}
		down := &toClient{to: client, ended: make(chan struct{})}
		c.conns.Go(func() {
			defer close(down.ended)
			defer client.Close()
			io.Copy(down, server)
		})
		c.conns.Go(func() {
			defer server.Close()
			c.forward(server, client, down)
		})
	}
}

// toClient writes what the server sends to a client, or drops it after the client was cut off.
type toClient struct {
	to    net.Conn
	muted atomic.Bool
	ended chan struct{} // closed when the server has closed the connection
}

// Write implements io.Writer.
func (c *toClient) Write(b []byte) (int, error) {
	if c.muted.Load() {
		return len(b), nil
	}
	return c.to.Write(b)
}

// forward sends the client's bytes to the server, as they arrive. A COMMIT arrives in one read: clients send it alone.
func (c *Cutter) forward(server, client net.Conn, down *toClient) {
	buf := make([]byte, 1<<20)
	for {
		n, err := client.Read(buf)
		if n > 0 && bytes.Contains(bytes.ToUpper(buf[:n]), []byte("COMMIT\x00")) {
			switch c.next.Swap(CutNowhere) {
			case CutLanded:
				down.muted.Store(true)
				client.(*net.TCPConn).SetLinger(0)
				server.Write(buf[:n])
				server.(*net.TCPConn).CloseWrite() // a reset could reach the server before the commit
				<-down.ended
				return
			case CutBefore:
				client.(*net.TCPConn).SetLinger(0)
				return
			}
		}
		if n > 0 {
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
