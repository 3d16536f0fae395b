package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/lending"
	"github.com/ledgerd/ledgerd/internal/must"
)

// A server is killed while 50 claims wait at it and items arrive: before an answer, after the first, or in the middle.
// Each client repeats its call at the next server. No item waits for the end of its lease, and none is given to two
// clients.
func TestKilledUnderPolls(t *testing.T) {
	onPostgres(t, func(t *testing.T, m *machine) {
		m.run(failure.ExitOK, "db", "migrate")
		m.run(failure.ExitOK, "kind", "set", "article", "--input", "line")
		p, base := m.api("--auth", "none")
		at, err := url.Parse(base)
		must.OK(t, err)
		const clients = 50
		for _, answers := range []int64{0, 1, clients / 2} {
			var waiting, given sync.WaitGroup
			waiting.Add(clients)
			var answered atomic.Int64
			var items sync.Map
			kill := make(chan struct{})
			for i := range clients {
				given.Go(func() {
					l := poll(t, base, fmt.Sprint("client-", i), waiting.Done, func() {
						if answered.Add(1) == answers {
							close(kill)
						}
					})
					if other, taken := items.LoadOrStore(l.ID, i); taken {
						t.Errorf("item %d was given to the clients %d and %d", l.ID, other, i)
					}
				})
			}
			waiting.Wait()
			var keys []string
			for i := range clients {
				keys = append(keys, fmt.Sprintf("%d of %d", i, answers))
			}
			m.run(failure.ExitOK, append([]string{"add", "article"}, keys...)...)
			if answers > 0 {
				select {
				case <-kill:
				case <-time.After(patience):
					t.Errorf("%d of %d answers came", answered.Load(), answers)
				}
			}
			must.OK(t, p.Process.Kill())
			<-p.done
			p, _ = m.api("--auth", "none", "--listen", at.Host)
			given.Wait()
		}
		if n := m.count("state:done"); n != 3*clients {
			t.Errorf("%d items are done, want %d", n, 3*clients)
		}
		http.DefaultClient.CloseIdleConnections()
		m.stop(p, syscall.SIGTERM, failure.ExitOK)
		m.run(failure.ExitOK, "db", "verify")
	})
}

// poll claims one item for a day, and ends it. It repeats each call until it is answered. It calls waiting when its
// first claim was sent, and answered when it has the item.
func poll(t *testing.T, base, agent string, waiting, answered func()) lending.Lent {
	var once sync.Once
	ctx, done := context.WithTimeout(t.Context(), patience)
	defer done()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { once.Do(waiting) }})
	var got lending.Claimed
	body := fmt.Sprintf(`{"kind":"article","agent":%q,"lease_s":86400,"wait_s":30,"resume":true}`, agent)
	for len(got.Leases) == 0 && ctx.Err() == nil {
		repeat(ctx, t, base+"/claims", body, &got)
	}
	answered()
	if len(got.Leases) != 1 {
		t.Errorf("%s holds %d items", agent, len(got.Leases))
		return lending.Lent{}
	}
	l := got.Leases[0]
	var ended lending.LeaseAnswers
	repeat(ctx, t, base+"/leases/finish", fmt.Sprintf(`{"endings":[{"token":%q}]}`, l.Token), &ended)
	if len(ended.Answers) != 1 || !ended.Answers[0].Recorded {
		t.Errorf("%s ends item %d: %+v", agent, l.ID, ended)
	}
	return l
}

// repeat posts a body until there is an answer, as a client does whose server may go away.
func repeat(ctx context.Context, t *testing.T, address, body string, into any) {
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			<-time.After(20 * time.Millisecond) // until the next server listens
			continue
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			continue
		}
		if err := json.Unmarshal(text, into); err != nil || res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %v\n%s", address, res.Status, err, text)
			return
		}
		return
	}
}
