package mcp

import (
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

// Path is the path at which agents are served over HTTP.
const Path = "/mcp"

// agentHeader, or the parameter agent of the URL, names the agent. Requests have no session, so only this name
// distinguishes two agents with the same token.
const agentHeader = "Ledgerd-Agent"

const (
	maxBody  = 4 << 20         // bytes of a request
	maxDesks = 10_000          // agents whose leases are remembered
	holdTime = 2 * time.Minute // deadline of a request
)

// Handler serves agents over Streamable HTTP, on top of the API of a ledger. Each request stands alone: the API
// decides by its headers who sends it and what they may do.
type Handler struct {
	api    *api.API
	client *http.Client
	served *protocol.StreamableHTTPHandler

	mu      sync.Mutex
	servers map[string]*protocol.Server // by the scopes of the caller
	desks   map[name]*desk
}

// name identifies an agent: by its token and its own name.
type name struct{ token, agent string }

// guest is the sender of a request, with its desk.
type guest struct {
	me   answer.Me
	api  *Caller
	desk *desk
}

type guestKey struct{}

// NewHandler returns the handler for Path.
func NewHandler(a *api.API) *Handler {
	h := &Handler{api: a, client: &http.Client{Transport: Within{a}}, servers: map[string]*protocol.Server{},
		desks: map[name]*desk{}}
	h.served = protocol.NewStreamableHTTPHandler(h.server, &protocol.StreamableHTTPOptions{Stateless: true,
		MaxRequestBodyBytes: maxBody, PropagateRequestCancellation: true,
		DisableLocalhostProtection: true}) // the API checks the host
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
	// A claim may wait longer than the server's usual deadlines. Not every writer has deadlines.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(holdTime))
	_ = control.SetWriteDeadline(time.Now().Add(holdTime))
	h.served.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), guestKey{}, g)))
}

// me asks the API who sends a request. If the API refuses a wrong token, host or site, me sends this refusal as the
// answer.
func (h *Handler) me(w http.ResponseWriter, r *http.Request) (me answer.Me, ok bool) {
	asked := r.Clone(r.Context())
	asked.Method, asked.URL, asked.Body, asked.ContentLength = http.MethodGet, &url.URL{Path: api.Base + "/me"},
		http.NoBody, 0
	asked.Header.Del("If-None-Match")
	a := api.NewRecorder()
	h.api.ServeHTTP(a, asked)
	if a.Status == http.StatusOK && json.Unmarshal(a.Bytes(), &me) == nil {
		return me, true
	}
	maps.Copy(w.Header(), a.Header())
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Bytes()) // the caller may have gone
	return me, false
}

// server returns the server for the scopes of a caller.
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

// desk returns the desk of an agent. An agent without a name gets one that is not kept, and it cannot claim.
func (h *Handler) desk(n name) *desk {
	if n.agent == "" {
		return newDesk("")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.desks[n] == nil {
		for other := range h.desks { // make room: the next claim of the other agent returns its leases
			if len(h.desks) < maxDesks {
				break
			}
			delete(h.desks, other)
		}
		h.desks[n] = newDesk(n.agent)
	}
	return h.desks[n]
}
