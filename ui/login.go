package ui

import (
	"crypto/rand"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/report"
)

// Bounds of logins.
const (
	sessionTime = 12 * time.Hour // since the login
	codeTime    = 10 * time.Minute
	maxSessions = 1000
)

// Sessions have the API token of each browser. They are in memory, so after a restart people log in again. They are
// safe for concurrent use.
type Sessions struct {
	cookie string // name of the cookie; each process has its own, because browsers send a cookie to all ports of a host

	mu    sync.Mutex
	open  map[string]session // by the value of the cookie
	codes map[string]session // by the code of a link
}

type session struct {
	token string
	until time.Time
}

// NewSessions returns Sessions in which no browser is logged in.
func NewSessions() *Sessions {
	return &Sessions{cookie: "ledgerd-" + rand.Text()[:8], open: map[string]session{}, codes: map[string]session{}}
}

// Code makes the code of a link, /login?code=CODE. The link logs in with an API token, once, within ten minutes.
func (s *Sessions) Code(token string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	code := rand.Text()
	s.codes[code] = session{token, time.Now().Add(codeTime)}
	return code
}

// redeem returns the token of a code, once.
func (s *Sessions) redeem(code string) (token string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, known := s.codes[code]
	delete(s.codes, code)
	return c.token, known && time.Now().Before(c.until)
}

// begin opens a session and returns its cookie. If there are too many sessions, it closes the session that ends first.
func (s *Sessions) begin(token string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	first := ""
	for id, o := range s.open {
		if !now.Before(o.until) {
			delete(s.open, id)
		} else if first == "" || o.until.Before(s.open[first].until) {
			first = id
		}
	}
	if len(s.open) >= maxSessions {
		delete(s.open, first)
	}
	id := rand.Text()
	s.open[id] = session{token, now.Add(sessionTime)}
	return id
}

// token returns the token of a session by its cookie.
func (s *Sessions) token(id string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, known := s.open[id]
	return o.token, known && time.Now().Before(o.until)
}

// leave ends the session of a browser.
func (s *site) leave(r *http.Request) {
	if s.Sessions == nil {
		return
	}
	if c, err := r.Cookie(s.Sessions.cookie); err == nil {
		s.Sessions.mu.Lock()
		defer s.Sessions.mu.Unlock()
		delete(s.Sessions.open, c.Value)
	}
}

// who finds the token of the user; in is false if the user has to log in first.
func (s *site) who(r *http.Request) (token string, in bool) {
	if s.Sessions == nil {
		return "", true
	}
	c, err := r.Cookie(s.Sessions.cookie)
	if err != nil {
		return "", false
	}
	return s.Sessions.token(c.Value)
}

// looks answers requests of users who are logged in. Others are redirected to the login, and come back to the page
// after that.
func (s *site) looks(do func(http.ResponseWriter, *view)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token, in := s.who(r)
		if in {
			if err := formOf(r); err != nil {
				s.fail(w, r, "/", err)
				return
			}
			do(w, &view{Request: r, site: s, token: token})
			return
		}
		to := "/"
		if r.Method == http.MethodGet {
			to = s.here(r)
		}
		to = "/login?to=" + url.QueryEscape(to)
		if r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Site") == "cross-site" {
			s.step(w, to)
			return
		}
		s.redirect(w, r, to)
	}
}

// step sends a page that opens the next page by itself. If a user follows a link on another site, the browser does not
// send the strict cookie, not even after a redirect. It sends the cookie with requests that come from this page.
func (s *site) step(w http.ResponseWriter, to string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	to = template.HTMLEscapeString(s.Prefix + to)
	fmt.Fprintf(w, `<!doctype html><html lang="en"><title>ledgerd</title><meta http-equiv="refresh" content="0; url=%s">`+
		`<p><a href="%s">Go on</a></p></html>`, to, to)
}

// formOf parses the form of a POST request.
func formOf(r *http.Request) error {
	if r.Method != http.MethodPost {
		return nil
	}
	err := r.ParseForm()
	if big, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &apiError{Status: http.StatusRequestEntityTooLarge, Title: "This is too long", Detail: "a form has at most " +
			report.Count(big.Limit) + " bytes; nothing was changed", Hint: "go back in the browser, and shorten the text"}
	}
	if err != nil {
		return &apiError{Status: http.StatusBadRequest, Title: "This form cannot be read", Detail: err.Error()}
	}
	return nil
}

// login logs in with the code of a link or with a token, or shows the form for a token.
func (s *site) login(w http.ResponseWriter, r *http.Request) {
	to := r.FormValue("to")
	if _, in := s.who(r); in {
		s.redirect(w, r, to)
		return
	}
	out := s.shown(r, page{Title: "Login"})
	out.Login = false
	out.Data = to
	token := r.PostFormValue("token")
	switch code := r.URL.Query().Get("code"); {
	case code != "":
		var ok bool
		if token, ok = s.Sessions.redeem(code); !ok {
			out.Problem = &answer.Problem{Title: "This link is used or too old",
				Hint: "start ledgerd ui again for a new one, or log in with a token"}
			s.render(w, r, http.StatusForbidden, out)
			return
		}
	case token == "":
		s.render(w, r, http.StatusOK, out)
		return
	default:
		v := &view{Request: r, site: s, token: token}
		if _, err := v.ask(http.MethodGet, "/kinds", nil, nil); err != nil {
			p := problemOf(err)
			out.Problem = &p
			s.render(w, r, p.Status, out)
			return
		}
	}
	http.SetCookie(w, &http.Cookie{Name: s.Sessions.cookie, Value: s.Sessions.begin(token), Path: s.Prefix + "/",
		HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: int(sessionTime / time.Second),
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"})
	s.redirect(w, r, to)
}

// logout ends the session of the user.
func (s *site) logout(w http.ResponseWriter, r *http.Request) {
	s.leave(r)
	if s.Sessions != nil {
		http.SetCookie(w, &http.Cookie{Name: s.Sessions.cookie, Path: s.Prefix + "/", MaxAge: -1})
	}
	s.redirect(w, r, "/login")
}
