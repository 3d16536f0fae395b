package ours

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/ledger"
)

// api is a process `ledgerd api` with its clients.
type api struct {
	url    string
	token  string // of its callers; "": no token is needed
	client *http.Client
	pid    int
}

// withAPI serves a new ledger over HTTP.
func (b *Bench) withAPI(ctx context.Context, on On, fn func(*api, *ledger.Ledger) error, flags ...string) error {
	return with(ctx, on, func(p *Place, l *ledger.Ledger) error {
		if err := l.SetKind(ctx, "bench", ledger.Kind{Name: Kind}); err != nil {
			return err
		}
		return b.serve(ctx, p, func(a *api) error { return fn(a, l) }, flags...)
	})
}

// serve serves a ledger over HTTP while fn runs; without flags no token is needed.
func (b *Bench) serve(ctx context.Context, p *Place, fn func(*api) error, flags ...string) (err error) {
	if len(flags) == 0 {
		flags = []string{"--auth", "none"}
	}
	a, stop, err := b.start(ctx, p, append([]string{"api"}, flags...)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return fn(a)
}

// start starts a server, `ledgerd api` or `ledgerd ui`, and waits until it accepts connections.
func (b *Bench) start(ctx context.Context, p *Place, args ...string) (a *api, stop func() error, err error) {
	address, err := freeAddress()
	if err != nil {
		return nil, nil, err
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(b.Programs, "ledgerd"), append(args, "--listen", address)...)
	cmd.Env = append(os.Environ(), "LEDGERD_DB="+p.Address())
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	a = &api{url: "http://" + address, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000}},
		pid: cmd.Process.Pid}
	stop = func() error {
		a.client.CloseIdleConnections()
		err := cmd.Process.Signal(syscall.SIGTERM)
		if exit := cmd.Wait(); exit != nil {
			err = errors.Join(err, exit, errors.New(stderr.String()))
		}
		return err
	}
	err = until(ctx, func() (bool, error) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			err = conn.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return a, stop, nil
}

// Pages are the pages and the API of a ledger, served by `ledgerd ui`.
type Pages struct {
	*api
	Stop func() error
}

// Pages serves a ledger without tokens.
func (b *Bench) Pages(ctx context.Context, p *Place) (*Pages, error) {
	a, stop, err := b.start(ctx, p, "ui", "--no-open", "--auth", "none")
	return &Pages{a, stop}, err
}

// Look asks for a path so many times, and returns how long each answer took until its end. {id} in the path is replaced
// by a random number, 1 … items.
func (p *Pages) Look(ctx context.Context, path string, times, items int) (took []time.Duration, err error) {
	for range times {
		at := p.url + strings.ReplaceAll(path, "{id}", strconv.Itoa(1+rand.IntN(items)))
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		answer, err := p.client.Do(r)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		took = append(took, time.Since(began))
		answer.Body.Close()
		switch {
		case err != nil:
			return nil, err
		case answer.Header.Get("Refresh") != "": // the items are being counted: a browser asks again after a second
			if len(took) == times {
				return nil, fmt.Errorf("%s: not counted after %d answers", at, times)
			}
			time.Sleep(time.Second)
		case answer.StatusCode != http.StatusOK:
			return nil, fmt.Errorf("%s: %s", at, answer.Status)
		}
	}
	return took, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// call posts a body and reads the answer.
func (a *api) call(ctx context.Context, path, media string, body []byte, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/api/v1"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", media)
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	answer, err := a.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s: %s", path, answer.Status, text)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

type (
	claim struct {
		Kind  string `json:"kind"`
		Agent string `json:"agent"`
		Limit int    `json:"limit"`
		Wait  int    `json:"wait_s,omitempty"`
	}
	claimed struct {
		Leases []struct {
			Token string `json:"token"`
		} `json:"leases"`
	}
	ending struct {
		Token   string `json:"token"`
		Outcome string `json:"outcome"`
	}
	finish struct {
		Endings []ending `json:"endings"`
	}
	answers struct {
		Answers []struct {
			Recorded bool `json:"recorded"`
		} `json:"answers"`
	}
)

// claim claims up to that many items.
func (a *api) claim(ctx context.Context, c claim) (got claimed, err error) {
	body, err := json.Marshal(c)
	if err != nil {
		return got, err
	}
	err = a.call(ctx, "/claims", "application/json", body, &got)
	return got, err
}

// finish ends all items of a claim and returns how many ends were recorded.
func (a *api) finish(ctx context.Context, c claimed) (n int, err error) {
	var f finish
	for _, ls := range c.Leases {
		f.Endings = append(f.Endings, ending{ls.Token, "done"})
	}
	body, err := json.Marshal(f)
	if err != nil {
		return 0, err
	}
	var got answers
	err = a.call(ctx, "/leases/finish", "application/json", body, &got)
	for _, answer := range got.Answers {
		if answer.Recorded {
			n++
		}
	}
	return n, err
}

// OverHTTP measures how fast clients claim and end n items, limit items in a call, through `ledgerd api`.
func (b *Bench) OverHTTP(ctx context.Context, on On, n, limit, clients int) (perSecond float64, err error) {
	err = b.withAPI(ctx, on, func(a *api, l *ledger.Ledger) error {
		if _, err := Add(ctx, l, 0, n, 1); err != nil {
			return err
		}
		var done atomic.Int64
		g, group := errgroup.WithContext(ctx)
		began := time.Now()
		for i := range clients {
			g.Go(func() error {
				for {
					got, err := a.claim(group, claim{Kind: Kind, Agent: fmt.Sprint("client-", i), Limit: limit})
					if err != nil || len(got.Leases) == 0 {
						return err
					}
					ended, err := a.finish(group, got)
					if done.Add(int64(ended)); err != nil {
						return err
					}
				}
			})
		}
		err := g.Wait()
		perSecond = float64(n) / time.Since(began).Seconds()
		if err == nil && done.Load() != int64(n) {
			err = fmt.Errorf("%d of %d items done", done.Load(), n)
		}
		return err
	})
	return perSecond, err
}

// AddOverHTTP measures how fast one client adds n items as lines of JSON, 5,000 in a call.
func (b *Bench) AddOverHTTP(ctx context.Context, on On, n int) (perSecond float64, err error) {
	err = b.withAPI(ctx, on, func(a *api, _ *ledger.Ledger) error {
		began := time.Now()
		for from := 0; from < n; from += AddBatch {
			var lines []byte
			for i := from; i < min(from+AddBatch, n); i++ {
				lines = fmt.Appendf(lines, `{"kind":%q,"key":%q,"payload":%s}`+"\n", Kind, Path(i), Payload(i))
			}
			var got any
			if err := a.call(ctx, "/items", "application/x-ndjson", lines, &got); err != nil {
				return err
			}
		}
		perSecond = float64(n) / time.Since(began).Seconds()
		return nil
	})
	return perSecond, err
}

// ClaimLatency adds items one by one while a claim waits over HTTP. It returns how long each took from the call that
// added it, on separate connections, to the answer of the claim.
func (b *Bench) ClaimLatency(ctx context.Context, on On, tries int) (took []time.Duration, err error) {
	err = b.withAPI(ctx, on, func(a *api, l *ledger.Ledger) error {
		type answer struct {
			at  time.Time
			got claimed
			err error
		}
		claims := make(chan answer)
		for i := range tries {
			go func() {
				got, err := a.claim(ctx, claim{Kind: Kind, Agent: "waits", Limit: 1, Wait: 30})
				claims <- answer{time.Now(), got, err}
			}()
			time.Sleep(Pause)
			called := time.Now()
			if _, err := l.Add(ctx, Items(i, 1)...); err != nil {
				return err
			}
			c := <-claims
			if c.err != nil {
				return c.err
			}
			took = append(took, c.at.Sub(called))
			if _, err := a.finish(ctx, c.got); err != nil {
				return err
			}
		}
		return nil
	})
	return took, err
}

const (
	idleFor  = 20 * time.Second // how long waiting claims are measured
	maxWait  = 30               // seconds that a claim may wait
	perToken = 64               // most claims of one token that may wait at a time
)

// IdleClaims keeps n claims waiting for items that do not come, each with a separate agent, and returns what that costs
// `ledgerd api`: percent of a core, and MiB more than before. A claim waits 30 s and is repeated; the ends of the
// claims are spread over that time.
func (b *Bench) IdleClaims(ctx context.Context, on On, n int) (cpu, mib float64, err error) {
	tokens, config, err := b.tokens((n + perToken - 1) / perToken)
	if err != nil {
		return 0, 0, err
	}
	err = b.withAPI(ctx, on, func(a *api, _ *ledger.Ledger) (err error) {
		a.token = tokens[0]
		if _, err := a.claim(ctx, claim{Kind: Kind, Agent: "idle", Limit: 1}); err != nil {
			return err
		}
		before, _, err := memory(a.pid)
		if err != nil {
			return err
		}
		polling, end := context.WithCancel(ctx)
		defer end()
		g, group := errgroup.WithContext(polling)
		waiting := make(chan struct{}, n)
		for i := range n {
			own := *a
			own.token = tokens[i/perToken]
			g.Go(func() error { return own.idle(group, i, waiting) })
		}
		for range n {
			select {
			case <-waiting:
			case <-group.Done():
				return g.Wait()
			}
		}
		began := time.Now()
		spent, err := ownTime(a.pid)
		if err != nil {
			return err
		}
		select {
		case <-time.After(idleFor):
		case <-group.Done():
			return g.Wait()
		}
		after, err := ownTime(a.pid)
		if err != nil {
			return err
		}
		cpu = 100 * (after - spent) / float64(time.Since(began).Microseconds())
		now, _, err := memory(a.pid)
		mib = now - before
		end()
		return errors.Join(err, g.Wait())
	}, "--config", config)
	return cpu, mib, err
}

// tokens makes access tokens that may claim, and returns the path of a config with them.
func (b *Bench) tokens(n int) (tokens []string, config string, err error) {
	var text []byte
	for i := range n {
		token := access.NewToken()
		tokens = append(tokens, token)
		text = fmt.Appendf(text, "[api.tokens.t%d]\nsha256 = \"%x\"\nscopes = [\"work\"]\n", i, access.Hash(token))
	}
	config = filepath.Join(b.Dir, "ledgerd.toml")
	return tokens, config, os.WriteFile(config, text, 0o600)
}

// idle claims again and again until ctx ends; it sends on waiting when its first claim was sent.
func (a *api) idle(ctx context.Context, i int, waiting chan<- struct{}) error {
	sent := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
		waiting <- struct{}{}
	}})
	for wait := 1 + i%maxWait; ; wait = maxWait {
		got, err := a.claim(sent, claim{Kind: Kind, Agent: fmt.Sprint("idle-", i), Limit: 1, Wait: wait})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case len(got.Leases) > 0:
			return errors.New("a claim got an item, and there is none")
		}
		sent = ctx
	}
}
