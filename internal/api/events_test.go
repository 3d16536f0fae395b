package api

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// listener is a ResponseWriter that passes lines on.
type listener struct {
	header http.Header
	lines  chan string
}

func (l *listener) Header() http.Header { return l.header }
func (l *listener) WriteHeader(int)     {}
func (l *listener) Flush()              {}
func (l *listener) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		l.lines <- strings.TrimSpace(line)
	}
	return len(text), nil
}

// listen follows events until end is called.
func (s *site) listen(token, query, last string) (lines chan string, end func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	r := s.request(token, http.MethodGet, "/events"+query, "").WithContext(ctx)
	r.Header.Set("Last-Event-ID", last)
	l := &listener{http.Header{}, make(chan string, 1000)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(l.lines)
		s.api.ServeHTTP(l, r)
	}()
	return l.lines, func() {
		cancel()
		<-ended
	}
}

// next waits for the next line that begins with a word.
func next(lines chan string, word string) string {
	for line := range lines {
		if rest, ok := strings.CutPrefix(line, word); ok {
			return rest
		}
	}
	return ""
}

// TestEvents: each attempt that ends is sent once, without its payload, to callers that may see its kind. A caller that
// comes back continues after its last event.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.add("page", "a", "b")
		s.add("mail", "m")
		all, endAll := s.listen("read", "", "")
		mail, endMail := s.listen("mail", "", "")
		<-time.After(2 * time.Second)
		s.end("page", ledger.Done([]byte(`"secret"`)))
		s.end("mail", ledger.Done(nil))
		begun := next(all, "id: ")
		id, data := next(all, "id: "), next(all, "data: ")
		if !strings.Contains(data, `"key":"a"`) || strings.Contains(data, "secret") {
			t.Errorf("%s", data)
		}
		if data = next(all, "data: "); !strings.Contains(data, `"key":"m"`) {
			t.Errorf("%s", data)
		}
		if data = next(mail, "data: "); !strings.Contains(data, `"key":"m"`) {
			t.Errorf("another kind is told: %s", data)
		}
		if next(all, ":") != "" { // a sign of life
			t.Error("the stream has ended")
		}
		endAll()
		endMail()
		<-time.After(time.Minute)
		s.end("page", ledger.Done(nil))
		for _, last := range []string{begun, id} {
			again, endAgain := s.listen("read", "", last)
			for _, key := range []string{"a", "m", "b"} { // those around the last one come again
				if data = next(again, "data: "); !strings.Contains(data, `"key":"`+key+`"`) {
					t.Errorf("%s, want %s", data, key)
				}
			}
			endAgain()
		}
	})
	// A stream ends when its token is removed from the config.
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		events, end := s.listen("read", "", "")
		next(events, "id: ")
		s.api.Guard.Set(nil, nil)
		began := time.Now()
		if next(events, "data: "); time.Since(began) > 2*streamBeat {
			t.Errorf("a token that was taken away goes on for %s", time.Since(began))
		}
		end()
	})
	s := newSite(t)
	for _, last := range []string{"x", "1-2", "1-2-3-4", "01-2-3"} {
		s.do("read", http.MethodGet, "/events", "", header("Last-Event-ID", last)).fails(http.StatusBadRequest, "bad_request")
	}
	for range maxStreams {
		s.api.streams <- struct{}{}
	}
	s.do("read", http.MethodGet, "/events", "").fails(http.StatusTooManyRequests, "too_many")
}

// TestEventsEnd: a stream ends with the server, so it holds nothing up.
func TestEventsEnd(t *testing.T) {
	s := newSite(t)
	s.api.Guard = access.NewGuard(address, []string{"127.0.0.1"}, nil, true)
	server := httptest.NewServer(s.api)
	defer server.Close()
	ctx, end := context.WithCancel(t.Context())
	running := make(chan struct{})
	go func() {
		defer close(running)
		s.api.Run(ctx)
	}()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+Base+"/events", nil)
	must.OK(t, err)
	res, err := server.Client().Do(r)
	must.OK(t, err)
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	if !lines.Scan() || res.Header.Get("Content-Type") != mediaEvents {
		t.Fatalf("%v %s", res.Header, lines.Text())
	}
	end()
	for lines.Scan() {
	}
	<-running
	must.OK(t, lines.Err())
}
