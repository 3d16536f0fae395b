package pgtest

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// Where a [Cutter] breaks a connection.
const (
	CutNowhere int32 = iota
	CutLanded        // the COMMIT has taken effect, and the client hears nothing
	CutBefore        // the server never gets it
)

// Cutter is a proxy before the shared server that breaks a connection at a COMMIT.
type Cutter struct {
	URL string // as [URL], through the proxy

	listener net.Listener
	server   string
	next     atomic.Int32
	conns    sync.WaitGroup
}

// NewCutter starts a proxy. The proxy ends with the test. Close what uses it before.
func NewCutter(t testing.TB) *Cutter {
	t.Helper()
	u, err := url.Parse(URL(t))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
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

// toClient passes on what the server sends. A client that is cut off gets none.
type toClient struct {
	to    net.Conn
	muted atomic.Bool
	ended chan struct{} // closed when the server has closed the connection
}

// Write implements io.Writer.
func (a *toClient) Write(b []byte) (int, error) {
	if a.muted.Load() {
		return len(b), nil
	}
	return a.to.Write(b)
}

// forward copies the client's bytes, as they arrive.
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
				server.(*net.TCPConn).CloseWrite() // a reset would reach the server before it is done
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
