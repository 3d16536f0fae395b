package web

import (
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
)

// told is a connection that reports when it is closed.
type told struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *told) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A server that is too busy closes what it has accepted. Whether that is seen before the request is sent or
// after it is chance, and in both cases another attempt can help.
func TestClosedBeforeTheRequest(t *testing.T) {
	server, client := net.Pipe()
	conn := &told{Conn: client, closed: make(chan struct{})}
	transport := &http.Transport{Dial: func(string, string) (net.Conn, error) { return conn, server.Close() }}
	seen := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		<-conn.closed
	}})
	req, err := http.NewRequestWithContext(seen, http.MethodGet, "http://a.example/", nil)
	must.OK(t, err)
	res, err := transport.RoundTrip(req)
	if err == nil {
		res.Body.Close()
		t.Fatal("there was an answer")
	}
	if f := Classify(err); f.Code != "reset" || f.Fate != failure.Again {
		t.Errorf("%v: %s, fate %v", err, f.Code, f.Fate)
	}
}
