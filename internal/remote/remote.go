// Package remote is a ledger that is reached over the HTTP API of another ledgerd. It sends the requests of commands
// and workers, and returns the answers in the types of package ledger. It decides nothing itself.
//
// Each call is bounded in time and size. If an answer was lost, calls that only look are repeated. These calls change
// something and are safe to repeat: Add, because an item is known by its key; Finish, because the ledger recognises an
// end; claims, because the repetition returns the leases that the agent holds (see claims.go); and Expire. Errors of
// the server are returned as the ledger itself would return them, with code and hint.
package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/calls"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/version"
	"github.com/ledgerd/ledgerd/ledger/tracing"
)

// Config of Open.
type Config struct {
	At    dburl.Remote
	Token string // "" for a server that asks for none
	// Environment is that of this program, "" if it has none; a server of another one refuses it.
	Environment string
	Log         *slog.Logger
	// Drain is called once, when the server asks an agent of this program to end; it may be nil.
	Drain func(agent string)
}

// Bounds of a call.
const (
	base       = "/api/v1"
	callTime   = 40 * time.Second // the server gives up after 30 s
	leaseTime  = 15 * time.Second // of calls about leases; the server gives up after 10 s
	answerMost = 256 << 20        // bytes of an answer
	sendMost   = 6 << 20          // bytes of a list that is sent at once; the server takes 8 MiB
	tries      = 4                // of a call that may be repeated
	firstPause = 100 * time.Millisecond
)

// Ledger is the remote ledger. It is safe for concurrent use.
type Ledger struct {
	dburl.Remote
	config Config
	client *http.Client
	opened bool // the API has answered; Open sets it
	claims claims
}

var _ ledgers.Any = (*Ledger)(nil)

// Open connects to the API, and checks that the server accepts the token.
func Open(ctx context.Context, c Config) (*Ledger, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.IdleConnTimeout = 16, 16, time.Minute
	t.MaxResponseHeaderBytes = 64 << 10
	l := &Ledger{Remote: c.At, config: c, client: &http.Client{Transport: t, CheckRedirect: noRedirect},
		claims: claims{now: time.Now}}
	l.config.Log = cmp.Or(l.config.Log, slog.Default())
	if _, err := l.Now(ctx); err != nil {
		return nil, err
	}
	l.opened = true
	return l, nil
}

// noRedirect follows no redirect, because the token is only for the server that the user named.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close closes idle connections.
func (l *Ledger) Close() error {
	l.client.CloseIdleConnections()
	return nil
}

// look makes a call that may be repeated, and repeats it after a temporary error. A call that took too long is not
// repeated, because it would take too long again.
func look[In, Out any](ctx context.Context, l *Ledger, call calls.Call[In, Out], in In) (out Out, err error) {
	pause := firstPause
	for try := 1; ; try++ {
		err = l.ask(ctx, callTime, call.Path(), in, &out)
		if !temporary(err) || errors.Is(err, errTooSlow) || try == tries || ctx.Err() != nil {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, err
		case <-time.After(pause):
		}
		pause *= 3
	}
}

// change makes a call once. If there was no answer, the hint of the error is to look whether the call took effect.
func change[In, Out any](ctx context.Context, l *Ledger, call calls.Call[In, Out], in In) (out Out, err error) {
	err = l.ask(ctx, callTime, call.Path(), in, &out)
	return out, hinted(err, hintActed)
}

// ask sends a body to a path below the base, and reads the answer.
func (l *Ledger) ask(ctx context.Context, within time.Duration, path string, body, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, errNoAnswer)
	defer cancel()
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(body); err != nil {
		return err
	}
	res, err := l.send(ctx, http.MethodPost, path, &text)
	if err != nil {
		return l.noAnswer(ctx, err)
	}
	defer res.Body.Close()
	return l.read(ctx, res, into)
}

var errNoAnswer = errors.New("no answer in time")

// send makes a request with the token and the trace context. The caller closes the body.
func (l *Ledger) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, string(l.Remote)+base+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "ledgerd/"+version.String())
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range tracing.Headers(ctx) {
		r.Header.Set(name, value)
	}
	if l.config.Environment != "" {
		r.Header.Set("Ledgerd-Environment", l.config.Environment)
	}
	if l.config.Token != "" {
		r.Header.Set("Authorization", "Bearer "+l.config.Token)
	}
	return l.client.Do(r)
}

// read decodes an answer, or returns the error that the server has sent.
func (l *Ledger) read(ctx context.Context, res *http.Response, into any) error {
	in := &io.LimitedReader{R: res.Body, N: answerMost + 1}
	if res.StatusCode != http.StatusOK {
		return l.refused(res, in)
	}
	if err := json.NewDecoder(in).Decode(into); err != nil {
		if in.N == 0 {
			return fmt.Errorf("%s: an answer has more than %d MiB", l.Remote, answerMost>>20)
		}
		return l.noAnswer(ctx, fmt.Errorf("the answer broke off: %w", err))
	}
	_, _ = io.Copy(io.Discard, in) // so that the connection is used again
	return nil
}

// refused decodes the error that the server has sent.
func (l *Ledger) refused(res *http.Response, body io.Reader) error {
	var p answer.Problem
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if media != "application/problem+json" || json.NewDecoder(body).Decode(&p) != nil || p.Code == "" {
		return l.notOurAPI(res)
	}
	p.Status = cmp.Or(p.Status, res.StatusCode)
	return errorOf(p)
}
