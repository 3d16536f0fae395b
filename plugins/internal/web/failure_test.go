package web

import (
	"errors"
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

// What net/http exports no error for is known by its text.
func TestConnectionLost(t *testing.T) {
	for text, code := range map[string]string{
		"http2: client connection lost":                                                                   "reset",
		"it broke off after 5 bytes: http2: client connection lost":                                       "reset",
		`http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug=""`: "reset",
		"http2: Transport received Server's graceful shutdown GOAWAY":                                     "reset",
		`malformed HTTP response "http2: GOAWAY"`:                                                         "bad_response",
	} {
		if f := Classify(errors.New(text)); f.Code != code || (f.Fate == failure.Again) != (code == "reset") {
			t.Errorf("%s: %s, fate %v", text, f.Code, f.Fate)
		}
	}
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
