// Package api is the HTTP API of a ledger, below /api/v1.
//
// One table of routes (route.go) describes the whole API. The handlers, the checks of scopes, openapi.json and
// docs/api.md are made from it. One file has one group of routes. The package decides nothing about items: it calls a
// ledger, as the command line does, and answers with the types of package answer.
//
// An answer costs the same however large the ledger is. A list comes in parts, and a part ends after a fifth of a
// second: its cursor names where to go on.
package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/lending"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/tracing"
)

// Base is the path below which all routes are.
const Base = "/api/v1"

// Types of bodies.
const (
	mediaJSON    = "application/json"
	mediaLines   = "application/x-ndjson"
	mediaProblem = "application/problem+json"
	mediaBytes   = "application/octet-stream"
	mediaEvents  = "text/event-stream"
)

// environmentHeader is the header in which a client may name its environment.
const environmentHeader = "Ledgerd-Environment"

// Config of New.
type Config struct {
	Ledger  *ledger.Ledger
	Reader  *ledger.Ledger // the same ledger on connections that cannot write; nil: Ledger
	Guard   *access.Guard
	Prefix  string // path at which a proxy serves this API: "/x/y"; "": there is none
	Log     *slog.Logger
	Version answer.Version
	Quiet   bool // see lending.Lender
	// Environment is that of the server; "": none. A request that names another one in its header is refused.
	Environment string
	// Grace is how long after New other ledgerds expire no leases through this server. While the server was down,
	// agents behind it could not renew their leases.
	Grace time.Duration
	// TracerProvider gets a span of each request, except those of workers and of streams; nil: no spans.
	TracerProvider trace.TracerProvider
}

// API is the handler of the HTTP API. It is safe for concurrent use.
type API struct {
	Config
	mux    *http.ServeMux
	lender *lending.Lender

	tracer  *tracing.Tracer
	started time.Time // when New made it

	stats   paced[answer.Stats] // the answer of getStats
	acts    *acts
	secrets *secrets

	streams chan struct{}   // has an entry for each open stream of events
	hints   chan struct{}   // has an entry for each caller that receives hints
	ctx     context.Context // ends with Run
	cancel  context.CancelFunc
}

// New makes the handler of all paths below Base.
func New(c Config) *API {
	if c.Reader == nil {
		c.Reader = c.Ledger
	}
	a := &API{Config: c, mux: http.NewServeMux(), lender: lending.New(c.Ledger, c.Log),
		acts: newActs(c.Reader), secrets: &secrets{reader: c.Reader}, streams: make(chan struct{}, maxStreams),
		hints: make(chan struct{}, maxHints), tracer: tracing.NewTracer(c.TracerProvider), started: time.Now()}
	a.lender.Quiet = c.Quiet
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.stats.read = func(ctx context.Context) (answer.Stats, error) {
		s, err := a.Reader.Stats(ctx)
		return answer.NewStats(s), err
	}
	for _, r := range table() {
		a.mux.Handle(r.Method+" "+Base+r.Path, a.handler(&r))
	}
	return a
}

// Run serves claims that wait for items, and carries out acts on many items, until ctx ends. Then claims that wait are
// answered at once, and streams of events end.
func (a *API) Run(ctx context.Context) {
	defer a.cancel()
	var running sync.WaitGroup
	running.Go(func() { a.acts.run(ctx) })
	running.Go(func() { a.lender.Run(ctx) })
	running.Wait()
}

// Hide masks fields of payloads, of every kind, for all but admins, besides those that plugins mark as secret.
func (a *API) Hide(fields []string) { a.secrets.setHidden(fields) }

// ServeHTTP implements http.Handler. A proxy may keep the prefix or remove it.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.Prefix != "" && strings.HasPrefix(r.URL.Path, a.Prefix+"/") {
		http.StripPrefix(a.Prefix, http.HandlerFunc(a.serve)).ServeHTTP(w, r)
		return
	}
	a.serve(w, r)
}

// serve sends a request that the guard admits to its route.
func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "private, no-cache")
	c := &Call{Request: r, api: a, w: w, Read: a.Reader, Ledger: a.Ledger}
	if err := a.Guard.Admit(r); err != nil {
		c.fail(err)
		return
	}
	if e := r.Header.Get(environmentHeader); e != "" && a.Environment != "" && e != a.Environment {
		c.fail(failure.New(failure.ExitDenied, "environment", "the server is of another environment than "+e,
			"is it the right server? to use it nevertheless, name its environment"))
		return
	}
	// the mux would redirect from a path that is not clean
	if _, pattern := a.mux.Handler(r); pattern != "" && path.Clean(r.URL.EscapedPath()) == r.URL.EscapedPath() {
		a.mux.ServeHTTP(w, r)
		return
	}
	refusal := NewRecorder()
	a.mux.ServeHTTP(refusal, r)
	if refusal.Status == http.StatusMethodNotAllowed {
		allowed := refusal.Header().Get("Allow") // the methods of this path
		h.Set("Allow", allowed)
		c.fail(failure.New(failure.ExitUsage, "bad_method", r.Method+" "+r.URL.Path+": there is no such method",
			"there are "+allowed))
		return
	}
	c.fail(failure.New(failure.ExitError, "not_found", r.URL.Path+": there is no such path",
		"all paths: "+a.Prefix+Base+"/openapi.json").In("path"))
}

// Recorder is an http.ResponseWriter that keeps an answer in memory, for clients in the same process.
type Recorder struct {
	bytes.Buffer // the body
	Status       int
	header       http.Header
}

// NewRecorder returns a Recorder with status 200.
func NewRecorder() *Recorder { return &Recorder{Status: http.StatusOK, header: http.Header{}} }

// Header implements http.ResponseWriter.
func (r *Recorder) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *Recorder) WriteHeader(status int) { r.Status = status }

// Flush does nothing. send calls it to learn whether the answer has arrived, and a Recorder always has it.
func (r *Recorder) Flush() {}

// handler answers the requests of one route. It checks the caller and the size of the body, then calls the route.
func (a *API) handler(route *Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), route.Timeout)
		defer cancel()
		ctx, w, ended := a.trace(ctx, route, w, r)
		defer ended()
		r = r.WithContext(ctx)
		c := &Call{Request: r, api: a, route: route, w: w, Read: a.Reader, Ledger: a.Ledger}
		leave, err := c.enter()
		if err != nil {
			c.fail(err)
			return
		}
		defer leave()
		out, err := route.call(c)
		if err != nil {
			c.fail(err)
			return
		}
		c.answer(out)
	})
}

// enter checks the size that the request announces and the rights of its caller. leave is called after the answer.
func (c *Call) enter() (leave func(), err error) {
	if c.ContentLength > c.route.MaxBody {
		return nil, &http.MaxBytesError{Limit: c.route.MaxBody}
	}
	c.Body = http.MaxBytesReader(c.w, c.Body, c.route.MaxBody)
	if c.route.Scope == "" {
		return func() {}, nil
	}
	if c.Grant, err = c.api.Guard.Login(c.Request); err == nil {
		err = c.allowed(c.route.Scope)
	}
	if err != nil {
		return nil, err
	}
	return c.api.Guard.Enter(c.Grant)
}

// allowed checks that the caller has a scope.
func (c *Call) allowed(scope access.Scope) error {
	switch {
	case !c.Grant.May(scope):
		return failure.New(failure.ExitDenied, "scope", "the token "+c.Grant.Name+" has no scope "+string(scope),
			"give it the scope in the config, or take another token")
	case c.route.AllKinds && c.Grant.Kinds != nil:
		return failure.New(failure.ExitDenied, "scope", "the token "+c.Grant.Name+" is bound to kinds, and this is about "+
			"the whole ledger", "take a token without kinds")
	}
	return nil
}

// visible narrows a filter to what the caller may see.
func (c *Call) visible(f ledger.Filter) ledger.Filter {
	switch {
	case c.Grant.Kinds == nil:
		return f
	case len(c.Grant.Kinds) == 0: // a filter without kinds matches all of them
		return f.And(ledger.IDs())
	}
	return f.And(ledger.Filter{Kinds: c.Grant.Kinds})
}

// selfWriter is an answer that writes itself.
type selfWriter interface {
	write(c *Call) error
}

// paged is an answer that is one of several parts.
type paged interface {
	Cursor() string
	Rows() []any
}

// answer writes the answer of a call that succeeded.
func (c *Call) answer(out any) {
	if own, ok := out.(selfWriter); ok {
		if err := own.write(c); err != nil {
			c.fail(err)
		}
		return
	}
	if list, ok := out.(paged); ok {
		if next := list.Cursor(); next != "" {
			u := *c.URL
			q := u.Query()
			q.Set("cursor", next)
			u.RawQuery = q.Encode()
			c.w.Header().Set("Link", "<"+c.api.Prefix+u.RequestURI()+`>; rel="next"`)
		}
		if strings.Contains(c.Header.Get("Accept"), mediaLines) {
			c.lines(list.Rows())
			return
		}
	}
	body, err := report.Marshal(out)
	if err != nil {
		c.fail(err)
		return
	}
	c.sendWithETag(body)
}

// lines writes one value of JSON on each line.
func (c *Call) lines(rows []any) {
	var all []byte
	for _, row := range rows {
		line, err := report.Marshal(row)
		if err != nil {
			c.fail(err)
			return
		}
		all = append(all, line...)
	}
	c.send(http.StatusOK, mediaLines, all)
}

// sendWithETag writes JSON with an ETag. A caller that has this content already gets status 304.
func (c *Call) sendWithETag(body []byte) {
	if c.Method == http.MethodGet {
		tag := etag(body)
		c.w.Header().Set("ETag", tag)
		if matches(c.Header.Get("If-None-Match"), tag) {
			c.w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	c.send(http.StatusOK, mediaJSON, body)
}

// etag is the ETag of a content.
func etag(body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

// matches reports whether a list of ETags has one. Weak ones match, because a proxy that compresses answers makes ETags
// weak. Their content is the same.
func matches(list, tag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag {
			return true
		}
	}
	return false
}

// sendTime bounds how long a caller may take to read an answer.
const sendTime = 20 * time.Second

// send writes an answer. If the caller does not get it, send calls unsent.
func (c *Call) send(status int, media string, body []byte) {
	c.w.Header().Set("Content-Type", media)
	c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	// A caller that does not read is cut off, because its answer costs memory. Not every writer has deadlines.
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(sendTime))
	c.w.WriteHeader(status)
	_, err := c.w.Write(body) // the caller may have gone
	if c.unsent == nil {
		return
	}
	if err == nil {
		err = http.NewResponseController(c.w).Flush()
	}
	if err != nil {
		c.unsent()
	}
}
