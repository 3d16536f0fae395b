package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

// pipes is a listener of connections without buffers: what is not read is not written.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, errors.New("closed")
	}
}

func (p *pipes) Close() error { close(p.ended); return nil }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7374} }

// TestSlowReaders: callers that stop reading a list or a stream are cut off in time, and free what they held. Meanwhile
// others are answered, but no more of their token than are allowed at a time.
func TestSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.tokens["slow"] = s.token("slow", access.Read, access.Payload)
		s.add("page", "a", "b", strings.Repeat("c", 2000))
		s.add("mail", strings.Repeat("m", 2000), strings.Repeat("n", 2000)) // more than a server keeps unsent
		listen := &pipes{make(chan net.Conn), make(chan struct{})}
		server := &http.Server{Handler: s.api}
		served := make(chan error, 1)
		go func() { served <- server.Serve(listen) }()
		stuck := func(token, path, accept string) net.Conn {
			ours, theirs := net.Pipe()
			listen.conns <- theirs
			r := s.request(token, http.MethodGet, path, "")
			r.Header.Set("Accept", accept)
			must.OK(t, r.Write(ours))
			return ours
		}
		var all []net.Conn
		for range maxStreams {
			c := stuck("read", "/events", mediaEvents)
			if line, err := bufio.NewReaderSize(c, 16).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
				t.Fatalf("%q, %v", line, err)
			}
			all = append(all, c) // the rest of the head is not read
		}
		for range access.MostAsking {
			all = append(all, stuck("slow", "/items", mediaLines))
		}
		synctest.Wait()
		s.do("slow", http.MethodGet, "/items", "").fails(http.StatusTooManyRequests, "too_many")
		for _, lent := range s.claim("work", `{"kind":"page","agent":"w","limit":3}`, 3) {
			if a := s.answers("work", "finish", endings(lent.Token, lent.Token))[0]; !a.Recorded {
				t.Errorf("%+v", a)
			}
		}
		<-time.After(2 * max(sendTime, streamWrite))
		synctest.Wait()
		if n := len(s.api.streams); n != 0 {
			t.Errorf("%d streams go on", n)
		}
		var v any
		s.do("slow", http.MethodGet, "/items", "").ok(&v)
		for _, c := range all {
			c.Close()
		}
		server.Close()
		<-served
	})
}

// TestGoneIsNoError: a caller that does not wait for its answer any more is no error of the server.
func TestGoneIsNoError(t *testing.T) {
	s := newSite(t)
	s.kinds("page")
	ctx, end := context.WithCancel(t.Context())
	end()
	s.do("work", http.MethodPost, "/claims", `{"kind":"page","agent":"w","wait_s":9}`, func(r *http.Request) {
		*r = *r.WithContext(ctx)
	})
	if s.log.Len() > 0 {
		t.Errorf("%s", s.log.String())
	}
}

// TestPartEnds: a part of a walk ends by its number of items or its size, and the caller is told whether there is more:
// also if there is no other part.
func TestPartEnds(t *testing.T) {
	for _, c := range []struct {
		indexed    bool
		left, size int
		ends, more bool
	}{
		{true, 1, walkBytes, false, false},
		{true, 1, walkBytes + 1, true, true},
		{true, 0, 1, true, true},
		{false, 1, onlyBytes, false, false},
		{false, 1, onlyBytes + 1, true, true},
		{false, 0, 1, true, false},
		{false, 0, onlyBytes + 1, true, false},
	} {
		if ends, more := partEnds(c.indexed, c.left, c.size); ends != c.ends || more != c.more {
			t.Errorf("%+v: ends %t, more %t", c, ends, more)
		}
	}
}

// slow is a store that takes a second to read a part of the journal or of the attempts.
type slow struct{ ledger.Store }

func (s slow) Journal(ctx context.Context, before int64, limit int) ([]ledger.JournalEntry, error) {
	time.Sleep(time.Second)
	return s.Store.Journal(ctx, before, limit)
}

func (s slow) Ended(ctx context.Context, q ledger.EndedQuery) ([]ledger.Ended, error) {
	time.Sleep(time.Second)
	return s.Store.Ended(ctx, q)
}

// TestPartsEndInTime: a list that has to pass by much ends a part when its time is over, and the parts together have
// everything. Kinds without recurring items hide no rounds. An act of which rows are in two parts is one entry.
func TestPartsEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 1100
		store := memory.New(memory.Options{})
		l := ledger.New(store, ledger.Options{})
		s := siteOver(t, l)
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "page", Key: "daily", Every: "24h"}))
		s.end("page", ledger.Done(nil))
		s.add("mail", "a", "b")
		act := ledger.OneAct(t.Context(), "")
		must.Do(t)(l.Cancel(act, "ben", ledger.IDs(2)))
		for _, kind := range []string{"page", "mail"} {
			items := make([]ledger.NewItem, many)
			for i := range items {
				items[i] = ledger.NewItem{Kind: kind, Key: fmt.Sprint("once ", i)}
			}
			must.Do(t)(l.Add(t.Context(), items...))
			must.Do(t)(l.Cancel(ledger.OneAct(t.Context(), ""), "ann", ledger.Filter{Kinds: []string{kind}, Above: 3}))
		}
		for i := range many {
			must.Do(t)(l.EditKind(t.Context(), "ann", "mail", func(k *ledger.Kind, _ bool) { k.Paused = i%2 == 0 }))
		}
		must.Do(t)(l.Cancel(act, "ben", ledger.IDs(3)))
		site := siteOver(t, ledger.New(slow{store}, ledger.Options{}))
		for path, c := range map[string]struct{ parts, rows int }{
			"/rounds?": {3, 1}, "/rounds?where=key:daily": {3, 1}, "/rounds?where=kind:mail": {1, 0},
			"/journal?actor=ben": {2, 1}, "/journal?item=2": {2, 1}, "/journal?actor=eve": {2, 0},
		} {
			var got []struct{ Changed int64 }
			parts := 0
			for cursor := ""; parts == 0 || cursor != ""; parts++ {
				var part struct {
					Items []struct{ Changed int64 }
					Next  string
				}
				site.do("all", http.MethodGet, path+"&cursor="+cursor, "").ok(&part)
				got, cursor = append(got, part.Items...), part.Next
			}
			if parts != c.parts || len(got) != c.rows {
				t.Errorf("%s: %d parts with %+v", path, parts, got)
			} else if c.rows > 0 && strings.HasPrefix(path, "/journal") && got[0].Changed != 2 {
				t.Errorf("%s: %+v", path, got)
			}
		}
	})
}

// TestPartsAreBounded: parts of lists end by their size, and nothing is left out.
func TestPartsAreBounded(t *testing.T) {
	s := newSite(t)
	big := []byte(`"` + strings.Repeat("x", 300<<10) + `"`)
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		must.Do(t)(s.l.Add(t.Context(), ledger.NewItem{Kind: "page", Key: key, Payload: big}))
	}
	id := s.add("mail", "m")[0]
	for range 6 {
		s.end("mail", ledger.Done(big))
		must.Do(t)(s.l.Reopen(t.Context(), "ann", ledger.IDs(id)))
	}
	for _, path := range []string{"/items?where=kind:page&", "/items/7/attempts?limit=100&"} {
		rows, parts := 0, 0
		for cursor := ""; ; parts++ {
			var part struct {
				Items []struct{}
				Next  string
			}
			got := s.do("all", http.MethodGet, path+"cursor="+cursor, "").ok(&part)
			if len(got.text) > partBytes+11*(310<<10) {
				t.Errorf("%s: a part has %d bytes", path, len(got.text))
			}
			rows += len(part.Items)
			if cursor = part.Next; cursor == "" {
				break
			}
		}
		if rows != 6 || parts < 1 && !strings.Contains(path, "attempts") { // attempts are read ten at a time
			t.Errorf("%s: %d rows in %d parts", path, rows, parts+1)
		}
	}
}
