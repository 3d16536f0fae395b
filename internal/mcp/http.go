package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	protocol "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api"
)

// Path is where agents are served over HTTP.
const Path = "/mcp"

// agentHeader, or the parameter agent of the URL, is the name of an agent. Requests have no session, so two agents of
// one token differ by it alone.
const agentHeader = "Ledgerd-Agent"

const (
	mostBody  = 4 << 20 // bytes of a request
	mostDesks = 10_000  // agents of which it is remembered what they hold
	holdTime  = 2 * time.Minute
)

// Handler serves agents over Streamable HTTP, below the API of a ledger. Each request is one of its own: who asks, and
// what they may do, is what the API answers to the same headers.
type Handler struct {
	api    *api.API
	client *http.Client
	served *protocol.StreamableHTTPHandler

	mu      sync.Mutex
	servers map[string]*protocol.Server // by the scopes of the caller
	desks   map[name]*desk
}

// name is an agent of a token.
type name struct{ token, agent string }

// guest is the sender of a request.
type guest struct {
	me   answer.Me
	api  *Caller
	desk *desk
}

type guestKey struct{}

// NewHandler makes the handler of Path.
func NewHandler(a *api.API) *Handler {
	h := &Handler{api: a, client: &http.Client{Transport: Within{a}}, servers: map[string]*protocol.Server{},
		desks: map[name]*desk{}}
	h.served = protocol.NewStreamableHTTPHandler(h.server, &protocol.StreamableHTTPOptions{Stateless: true,
		MaxRequestBodyBytes: mostBody, PropagateRequestCancellation: true,
		DisableLocalhostProtection: true}) // the API has looked at the host
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	me, ok := h.me(w, r)
	if !ok {
		return
	}
	agent := cmp.Or(r.URL.Query().Get("agent"), r.Header.Get(agentHeader))
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	g := &guest{me: me, desk: h.desk(name{me.Name, agent}),
		api: &Caller{Client: h.client, At: "http://" + r.Host, Token: strings.TrimSpace(token), remote: r.RemoteAddr}}
	// A claim may wait longer than a server reads and writes usually. What is no connection has no such end.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(holdTime))
	_ = control.SetWriteDeadline(time.Now().Add(holdTime))
	h.served.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), guestKey{}, g)))
}

// me asks the API who sends a request. Its refusal is the answer: of a wrong token, host or site.
func (h *Handler) me(w http.ResponseWriter, r *http.Request) (me answer.Me, ok bool) {
	asked := r.Clone(r.Context())
	asked.Method, asked.URL, asked.Body, asked.ContentLength = http.MethodGet, &url.URL{Path: api.Base + "/me"},
		http.NoBody, 0
	asked.Header.Del("If-None-Match")
	k := &kept{header: http.Header{}, status: http.StatusOK}
	h.api.ServeHTTP(k, asked)
	if k.status == http.StatusOK && json.NewDecoder(bytes.NewReader(k.body.Bytes())).Decode(&me) == nil {
		return me, true
	}
	maps.Copy(w.Header(), k.header)
	w.WriteHeader(k.status)
	_, _ = w.Write(k.body.Bytes()) // the caller may have gone
	return me, false
}

// server is the one for what a caller may do.
func (h *Handler) server(r *http.Request) *protocol.Server {
	g := r.Context().Value(guestKey{}).(*guest)
	scopes := strings.Join(g.me.Scopes, " ")
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.servers[scopes]
	if s == nil {
		s = newServer(g.me, func(ctx context.Context) *visit {
			g := ctx.Value(guestKey{}).(*guest)
			return &visit{desk: g.desk, api: g.api}
		})
		h.servers[scopes] = s
	}
	return s
}

// desk is the one of an agent. An agent without a name has none that is kept, and cannot claim.
func (h *Handler) desk(of name) *desk {
	if of.agent == "" {
		return newDesk("")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.desks[of] == nil {
		for any := range h.desks { // one makes room: the next claim of its agent returns what it holds
			if len(h.desks) < mostDesks {
				break
			}
			delete(h.desks, any)
		}
		h.desks[of] = newDesk(of.agent)
	}
	return h.desks[of]
}
