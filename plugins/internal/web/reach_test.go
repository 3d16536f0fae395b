package web

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"testing"
	"time"
)

// noticed is a connection that says when it is closed on our side.
type noticed struct {
	net.Conn
	closed func()
}

func (n *noticed) Close() error {
	defer n.closed()
	return n.Conn.Close()
}

// TestClosedBeforeTheRequest: a server that hangs up at once has not answered, whether its end is noticed
// before the request is written or after.
func TestClosedBeforeTheRequest(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			conn.Close()
		}
	}()
	c, err := NewClient(Reach{AllowPrivate: true, Deadline: time.Minute, PerHost: 1})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	c.Transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := c.Dialer.DialContext(ctx, network, address)
		return &noticed{conn, sync.OnceFunc(func() { close(closed) })}, err
	}
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { <-closed }, // before the request
	})
	_, err = c.Do(c.Request(ctx, http.MethodGet, &url.URL{Scheme: "http", Host: l.Addr().String()}, "*/*"))
	if err == nil {
		t.Fatal("a server that says nothing has answered")
	}
	if f := Classify(err); f.Code != "reset" {
		t.Errorf("got %s: %v", f.Code, f)
	}
}
