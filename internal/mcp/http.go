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

// Path is the path at which agents are served over HTTP.
const Path = "/mcp"

// agentHeader, or the parameter agent of the URL, names the agent. Requests have no session, so only this name
// distinguishes two agents with the same token.
const agentHeader = "Ledgerd-Agent"

const (
	mostBody  = 4 << 20 // bytes of a request
	mostDesks = 10_000  // agents whose leases are remembered
	holdTime  = 2 * time.Minute
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
		MaxRequestBodyBytes: mostBody, PropagateRequestCancellation: true,
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
	// A claim may wait longer than the server's usual deadlines. An error is no problem: without a connection there is
	// no deadline.
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
func (h *Handler) desk(of name) *desk {
	if of.agent == "" {
		return newDesk("")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.desks[of] == nil {
		for any := range h.desks { // remove any one to make room: the next claim of its agent returns its leases
			if len(h.desks) < mostDesks {
				break
			}
			delete(h.desks, any)
		}
		h.desks[of] = newDesk(of.agent)
	}
	return h.desks[of]
}
