package access

import (
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Refusal is why a request is not answered.
type Refusal struct {
	Code    string // for programs
	Message string
	Hint    string
	Retry   time.Duration // when to try again; 0: it would not help
}

func (r *Refusal) Error() string { return r.Message }

// Codes of refusals.
const (
	CodeHost         = "wrong_host"
	CodeCrossSite    = "cross_site"
	CodeUnauthorized = "unauthorized"
	CodeTooMany      = "too_many_logins"
	// CodeTooManyRequests is the code of a refusal by Enter.
	CodeTooManyRequests = "too_many"
)

// Guard admits or refuses requests before any other code handles them. It is safe for concurrent use.
type Guard struct {
	address string
	open    bool // no token is asked for
	cross   *http.CrossOriginProtection
	known   atomic.Pointer[known]

	mu     sync.Mutex
	failed map[string]*rate.Limiter // of callers with wrong tokens, by address
	asking map[string]int           // number of requests that are being answered, by token
}

// known are the names of the server and the tokens of the configuration.
type known struct {
	hosts  []string // under which the server may be reached, without ports
	tokens []Token
}

// NewGuard makes the Guard of a server. address is its host:port, hosts are further names under which it may be
// reached. If open is set, the guard asks for no token.
func NewGuard(address string, hosts []string, tokens []Token, open bool) *Guard {
	g := &Guard{address: address, open: open, cross: http.NewCrossOriginProtection(), failed: map[string]*rate.Limiter{},
		asking: map[string]int{}}
	g.Set(hosts, tokens)
	return g
}

// Set replaces the further names and the tokens. Tokens that are not in the new list are refused from now on.
func (g *Guard) Set(hosts []string, tokens []Token) {
	k := &known{tokens: tokens}
	for _, h := range append([]string{g.address}, hosts...) {
		k.hosts = append(k.hosts, hostOf(h))
	}
	if IsLoopback(g.address) {
		k.hosts = append(k.hosts, "localhost", "127.0.0.1", "::1")
	}
	g.known.Store(k)
}

// IsLoopback reports whether an address, host:port, is reached from this machine only.
func IsLoopback(address string) bool {
	host := hostOf(address)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// hostOf is a host without its port, brackets and final dot, in small letters.
func hostOf(text string) string {
	host, _, err := net.SplitHostPort(text)
	if err != nil {
		host = strings.Trim(text, "[]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// Admit refuses, with a *Refusal, requests that a page of another site makes in a browser: requests under a name that
// the server does not have (DNS rebinding), and all that the browser marks as coming from another site.
func (g *Guard) Admit(r *http.Request) error {
	write := *r
	write.Method = http.MethodPost // CrossOriginProtection would let a GET pass
	return g.AdmitPage(&write)
}

// AdmitPage is Admit for pages, to which other sites may link.
func (g *Guard) AdmitPage(r *http.Request) error {
	if !slices.Contains(g.known.Load().hosts, hostOf(r.Host)) {
		return &Refusal{Code: CodeHost, Message: fmt.Sprintf("this server is not called %q", r.Host),
			Hint: "name it in hosts of [api] in the config if it is to be reached so"}
	}
	if g.cross.Check(r) != nil {
		return &Refusal{Code: CodeCrossSite, Message: "a page of another site asks",
			Hint: "programs send neither Origin nor Sec-Fetch-Site"}
	}
	return nil
}

// Login returns the rights of the token of a request; the error is a *Refusal.
func (g *Guard) Login(r *http.Request) (Grant, error) {
	if g.open {
		return Anyone, nil
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if kind == "" {
		return Grant{}, &Refusal{Code: CodeUnauthorized, Message: "there is no token",
			Hint: "send it in the header Authorization, after the word Bearer"}
	}
	token = strings.TrimSpace(token)
	hash := Hash(token)
	tokens := g.known.Load().tokens
	found := -1
	for i, t := range tokens {
		if subtle.ConstantTimeCompare(hash[:], t.Hash[:]) == 1 {
			found = i
		}
	}
	if strings.EqualFold(kind, "Bearer") && found >= 0 {
		return tokens[found].Grant, nil
	}
	if wait := g.note(r.RemoteAddr); wait > 0 {
		return Grant{}, &Refusal{Code: CodeTooMany, Message: "too many wrong tokens", Retry: wait,
			Hint: "a right token is taken at any time"}
	}
	hint := "it may have been taken out of the config"
	if !IsToken(token) {
		hint = "it is not a whole token: ldg_ and 39 letters and digits"
	}
	return Grant{}, &Refusal{Code: CodeUnauthorized, Message: "this token is not known", Hint: hint}
}

// MostAsking is how many requests of one token are answered at a time. Callers that read slowly hold no more.
const MostAsking = 256

// Enter counts a request of a caller until leave is called. It refuses more than MostAsking at a time, with a *Refusal.
func (g *Guard) Enter(by Grant) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asking[by.Name] >= MostAsking {
		return nil, &Refusal{Code: CodeTooManyRequests, Message: fmt.Sprintf("%d requests of the token %s are being answered",
			MostAsking, by.Name), Hint: "wait for the answers of some", Retry: time.Second}
	}
	g.asking[by.Name]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.asking[by.Name]--; g.asking[by.Name] == 0 {
			delete(g.asking, by.Name)
		}
	}, nil
}

const (
	failuresPerMinute = 5
	maxFailing        = 10_000 // addresses that are remembered
)

// note counts a wrong token from an address. If there were too many, it returns how long the caller should wait.
func (g *Guard) note(remote string) time.Duration {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.failed) >= maxFailing {
		clear(g.failed)
	}
	limiter := g.failed[host]
	if limiter == nil {
		limiter = rate.NewLimiter(rate.Every(time.Minute/failuresPerMinute), failuresPerMinute)
		g.failed[host] = limiter
	}
	if limiter.Allow() {
		return 0
	}
	return time.Minute / failuresPerMinute
}
