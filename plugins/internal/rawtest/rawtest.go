// Package rawtest has servers for tests that send any bytes, also those that break the rules of HTTP.
package rawtest

import (
	"context"
	"net"
	"sync"
	"testing"
)

// Serve starts a server on loopback that runs talk for each connection; talk's connection is closed when it
// returns and when the test ends. It returns host:port.
func Serve(t testing.TB, talk func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				defer stop()
				defer conn.Close()
				talk(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		cancel()
		wg.Wait()
	})
	return l.Addr().String()
}
