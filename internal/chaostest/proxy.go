//go:build unix

package chaostest

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// The places where a proxy cuts a connection.
const (
	cutNowhere int32 = iota
	cutLanded        // the server gets the commit, but the client gets no answer
	cutBefore        // the server does not get the commit
)

// proxy forwards to a Postgres server. It knows where messages end, and breaks the connection of the next client that
// commits.
type proxy struct {
	listener net.Listener
	next     atomic.Int32 // where to cut the connection of the next client that commits
	cuts     atomic.Int64 // so far
	conns    sync.WaitGroup
}

func newProxy(server string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l}
	p.conns.Go(func() { relay(l, server, p.start) })
	return p, nil
}

// relay accepts clients until the listener is closed, connects each to the server at an address, and calls fn with both
// connections.
func relay(l net.Listener, address string, fn func(server, client net.Conn)) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		if server, err := net.Dial("tcp", address); err == nil {
			fn(server, client)
		} else {
			client.Close()
		}
	}
}

func (p *proxy) close() error {
	err := p.listener.Close()
	p.conns.Wait()
	return err
}

// start starts to forward in both directions.
func (p *proxy) start(server, client net.Conn) {
	p.conns.Go(func() {
		defer client.Close()
		_, _ = io.Copy(client, server)
	})
	p.conns.Go(func() {
		defer server.Close()
		p.forward(server.(*net.TCPConn), client.(*net.TCPConn))
	})
}

// forward forwards the client's bytes, message by message of the frontend/backend protocol (version 3). Each writing
// statement of ledgerd commits when the server gets Sync.
func (p *proxy) forward(server, client *net.TCPConn) {
	header := make([]byte, 5)
	first := true // the startup message has no type
	writes := false
	for {
		h := header
		if first {
			h = header[1:]
		}
		if _, err := io.ReadFull(client, h); err != nil {
			return
		}
		body := make([]byte, max(0, int(binary.BigEndian.Uint32(header[1:]))-4))
		if _, err := io.ReadFull(client, body); err != nil {
			return
		}
		kind := header[0] // 0 of the startup message
		if kind == 'P' {
			writes = writes || committing(body)
		}
		if kind == 'S' && writes {
			writes = false
			switch p.next.Swap(cutNowhere) {
			case cutLanded:
				p.cuts.Add(1)
				_ = client.SetLinger(0)
				_, err := server.Write(append(h, body...))
				client.Close()
				if err == nil && server.CloseWrite() == nil { // a reset could stop the server before the commit
					_, _ = io.Copy(io.Discard, server)
				}
				return
			case cutBefore:
				p.cuts.Add(1)
				_ = client.SetLinger(0)
				client.Close()
				return
			}
		}
		if _, err := server.Write(append(h[:len(h):len(h)], body...)); err != nil {
			return
		}
		first = false
	}
}

// committing reports whether a statement ends a transaction that may have written.
func committing(parse []byte) bool {
	for _, word := range []string{"COMMIT", "UPDATE ", "INSERT ", "DELETE "} {
		if bytes.Contains(parse, []byte(word)) {
			return true
		}
	}
	return false
}
