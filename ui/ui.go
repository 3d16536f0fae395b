package ui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/ledger"
)

//go:embed templates assets
var files embed.FS

// Options of New.
type Options struct {
	// API serves the HTTP API, at /api/v1.
	API http.Handler
	// Admit refuses requests that come from a page of another site, or that have another host name. nil admits all.
	Admit func(*http.Request) error
	// Name of the ledger, shown on each page.
	Name string
	// Prefix is the path below which the pages are, such as "/ledger"; "" is the root. New panics if CheckPrefix
	// refuses it.
	Prefix string
	// Sessions has the tokens of users. nil means that the API needs no token.
	Sessions *Sessions
	// Verdicts are the buttons of a kind that people work, beside done and failed; nil means none.
	Verdicts func(kind string) []string
	// Trace is the URL of a trace by its id, "" for none; nil means that the pages have only ids.
	Trace func(id string) string
}

// page is one page.
type page struct {
	Path  string // below the prefix
	Title string
	Key   string // the letter that opens the page after g; "" for pages that are not in the menu
	show  func(*view) (any, error)
}

// pages are the pages of the menu, in its order, and then the others.
var pages = []page{
	{"/", "Today", "t", today},
	{"/desk", "Desk", "d", desk},
	{"/items", "Items", "i", items},
	{"/causes", "Causes", "c", causes},
	{"/leases", "Leases", "l", leases},
	{"/work", "Work", "w", work},
	{"/rounds", "Rounds", "r", rounds},
	{"/limits", "Limits", "e", limits},
	{"/machines", "Machines", "m", machines},
	{"/journal", "Journal", "j", journal},
	{"/items/{id}", "Item", "", item},
	{"/act", "Act", "", actForm},
}

// site answers requests of browsers.
type site struct {
	Options
	mux       *http.ServeMux
	templates map[string]*template.Template // by title
	assets    map[string]asset              // by file name
	style     template.CSS                  // within each page: a first visit shows it a request earlier
	policy    string                        // Content-Security-Policy
	desks     desks
}

// asset is a file whose URL has a digest, so that browsers may keep it.
type asset struct {
	address string // with a digest of the content
	media   string
	text    []byte
}

// CheckPrefix refuses a prefix that begins a longer path of the pages, such as /desk of /desk/{id}, and the paths of
// login and logout. A prefix that is only a page, such as /work, is allowed. If a proxy removes the prefix from paths,
// a refused one could not be told from such a path.
func CheckPrefix(prefix string) error {
	taken := []string{"/login", "/logout", "/acts", "/desk", "/items", "/kinds", "/export", "/assets"}
	if slices.Contains(taken, strings.TrimSuffix(prefix, "/")) {
		return &ledger.Error{Message: fmt.Sprintf("the prefix %q is also a path of the pages", prefix),
			Hint: "choose another prefix, such as /ledger"}
	}
	return nil
}

// New makes the handler of all pages.
func New(o Options) http.Handler {
	if err := CheckPrefix(o.Prefix); err != nil {
		panic(err)
	}
	o.Prefix = strings.TrimSuffix(o.Prefix, "/")
	if o.Verdicts == nil {
		o.Verdicts = func(string) []string { return nil }
	}
	if o.Trace == nil {
		o.Trace = func(string) string { return "" }
	}
	s := &site{Options: o, mux: http.NewServeMux(), templates: map[string]*template.Template{}, assets: map[string]asset{},
		desks: desks{all: map[desktop]*taken{}}}
	read := func(name string) []byte {
		text, err := files.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // it is part of the program
		}
		return text
	}
	s.style = template.CSS(read("style.css"))
	style := sha256.Sum256([]byte(s.style))
	s.policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(style[:]) + "'; " +
		"script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; " +
		"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types ledgerd"
	for name, media := range map[string]string{"script.js": "text/javascript; charset=utf-8",
		"icon.svg": "image/svg+xml"} {
		text := read(name)
		sum := sha256.Sum256(text)
		a := asset{address: o.Prefix + "/assets/" + hex.EncodeToString(sum[:6]) + "/" + name, media: media, text: text}
		s.assets[name] = a
		s.mux.HandleFunc("GET "+a.address, a.serve)
	}
	base := template.Must(template.New("").Funcs(words).ParseFS(files, "templates/layout.html",
		"templates/chart.html"))
	parse := func(title string) {
		name := "templates/" + strings.ToLower(title) + ".html"
		s.templates[title] = template.Must(template.Must(base.Clone()).ParseFS(files, name))
	}
	for _, p := range pages {
		parse(p.Title)
		s.handle(http.MethodGet, p.Path, s.looks(s.page(p)))
	}
	parse("Login")
	parse("Problem")
	s.handle(http.MethodGet, "/login", s.login)
	s.handle(http.MethodPost, "/login", s.login)
	s.handle(http.MethodPost, "/logout", s.logout)
	s.handle(http.MethodPost, "/acts", s.looks(s.act))
	s.handle(http.MethodPost, "/acts/{uuid}", s.looks(s.undo))
	s.handle(http.MethodPost, "/kinds/{kind}/paused", s.looks(s.pause))
	s.handle(http.MethodPost, "/desk/take", s.deskAct(s.take))
	s.handle(http.MethodPost, "/desk/{id}", s.deskAct(s.decide))
	s.handle(http.MethodPost, "/desk/{id}/hand", s.deskAct(s.handOver))
	s.handle(http.MethodPost, "/desk/{id}/undo", s.deskAct(s.retract))
	s.handle(http.MethodGet, "/items/{id}/attempts/{attempt}/output", s.looks(s.output))
	s.handle(http.MethodGet, "/export/{format}", s.looks(s.export))
	s.mux.HandleFunc("/", s.notFound)
	return s
}

// notFound answers a request for a page that does not exist.
func (s *site) notFound(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, "/", &apiError{Status: http.StatusNotFound, Title: "There is no such page",
		Detail: r.Method + " " + r.URL.Path, Hint: "the menu has all pages; items are found by a filter"})
}

// fail shows what went wrong, and the way back.
func (s *site) fail(w http.ResponseWriter, r *http.Request, back string, err error) {
	p := problemOf(err)
	out := s.shown(r, page{Title: "Problem"})
	out.Problem, out.Data = &p, back
	s.render(w, r, p.Status, out)
}

// handle adds a route below the prefix.
func (s *site) handle(method, at string, do http.HandlerFunc) {
	if at == "/" {
		at = "/{$}"
	}
	s.mux.HandleFunc(method+" "+s.Prefix+at, do)
}

// ServeHTTP implements http.Handler.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", s.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "private, no-cache")
	if s.Admit != nil {
		if err := s.Admit(r); err != nil {
			http.Error(w, err.Error(), http.StatusMisdirectedRequest)
			return
		}
	}
	r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
	if r.URL.Path == s.Prefix && !slices.ContainsFunc(pages, func(p page) bool { return p.Path == s.Prefix }) {
		http.Redirect(w, r, s.Prefix+"/", http.StatusSeeOther)
		return
	}
	if s.Prefix != "" && !strings.HasPrefix(r.URL.Path, s.Prefix+"/") { // a proxy has removed the prefix
		at := *r.URL
		at.Path, at.RawPath = s.Prefix+r.URL.Path, ""
		r = r.Clone(r.Context())
		r.URL = &at
	}
	s.mux.ServeHTTP(w, r)
}

func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("Content-Type", a.media)
	deliver(w, r, http.StatusOK, a.text)
}

// view is one request for a page.
type view struct {
	*http.Request
	site  *site
	token string // of the user, for the API
}

// shown is the data of the templates.
type shown struct {
	Page    page
	Pages   []page
	Name    string
	Prefix  string
	Style   template.CSS
	Script  string
	Icon    string
	Here    string           // path and query of this page
	Where   string           // the filter in the URL
	Held    []answer.BulkAct // acts that have not ended, and the act that was requested on this page
	Login   bool             // there are sessions, so the user can log out
	Acts    bool             // the user may retry, cancel and decide
	Undo    string           // the key u undoes the act with this id, or the decision about the item with this id
	Problem *answer.Problem
	Data    any // of this page
}

// page answers a request for a page.
func (s *site) page(p page) func(http.ResponseWriter, *view) {
	return func(w http.ResponseWriter, v *view) {
		began := time.Now()
		data, err := p.show(v)
		if err != nil && p.Path != "/items" && p.Path != "/causes" { // these two show the filter that was refused
			data = nil // else the page would show that there are no items
		}
		out := s.shown(v.Request, p)
		var me answer.Me
		if err == nil {
			me, err = get[answer.Me](v, "/me", nil)
			out.Acts = me.May("operate")
		}
		if out.Acts && err == nil {
			out.Held, err = v.held()
		}
		out.Undo = undoes(out.Held, "api:"+me.Name, data)
		status := http.StatusOK
		if err != nil {
			problem := problemOf(err)
			if problem.Code == "unauthorized" && s.Sessions != nil {
				s.redirect(w, v.Request, "/login?to="+url.QueryEscape(s.here(v.Request)))
				return
			}
			if problem.Code == notCounted {
				w.Header().Set("Refresh", "1")
			}
			out.Problem, status = &problem, problem.Status
		}
		out.Data = data
		// script.js reads this time: it loads a slow page again less often, so that an open page costs at most 2 % of the
		// server's time.
		w.Header().Set("Server-Timing", fmt.Sprintf("page;dur=%.1f", time.Since(began).Seconds()*1000))
		s.render(w, v.Request, status, out)
	}
}

// held are the acts that can still be undone or stopped, and the act that was requested on this page, also after its
// end.
func (v *view) held() ([]answer.BulkAct, error) {
	open, err := get[answer.List[answer.BulkAct]](v, "/acts", nil)
	id := v.URL.Query().Get("act")
	if err != nil || id == "" || slices.ContainsFunc(open.Items, func(a answer.BulkAct) bool { return a.ID == id }) {
		return open.Items, err
	}
	if act, err := get[answer.BulkAct](v, "/acts/"+url.PathEscape(id), nil); err == nil { // it is forgotten after an hour
		return append(open.Items, act), nil
	}
	return open.Items, nil
}

// undoes returns the id of the user's newest act or decision that can still be undone; of a decision it is the item's.
func undoes(held []answer.BulkAct, by string, data any) (id string) {
	var newest time.Time
	for _, a := range held {
		if at := time.Time(a.Begins); a.By == by && (a.State == "held" || a.State == "waiting") && !at.Before(newest) {
			id, newest = a.ID, at
		}
	}
	d, _ := data.(deskData)
	for _, x := range d.Sending {
		if at := time.Time(x.At); !x.Leaving && !at.Before(newest) {
			id, newest = strconv.FormatInt(x.Item, 10), at
		}
	}
	return id
}

// shown has the data that all pages share.
func (s *site) shown(r *http.Request, p page) shown {
	return shown{Page: p, Pages: pages, Name: s.Name, Prefix: s.Prefix, Style: s.style,
		Script: s.assets["script.js"].address, Icon: s.assets["icon.svg"].address, Here: s.here(r),
		Where: r.URL.Query().Get("where"), Login: s.Sessions != nil}
}

// here is the path and query of a request below the prefix, without the id of the act that was requested.
func (s *site) here(r *http.Request) string {
	q := r.URL.Query()
	q.Del("act")
	at := strings.TrimPrefix(r.URL.Path, s.Prefix)
	if len(q) > 0 {
		at += "?" + q.Encode()
	}
	return at
}

// render writes a page, or status 304 if the browser has it already.
func (s *site) render(w http.ResponseWriter, r *http.Request, status int, out shown) {
	var text bytes.Buffer
	if err := s.templates[out.Page.Title].ExecuteTemplate(&text, "layout", out); err != nil {
		http.Error(w, "this page cannot be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	sum := sha256.Sum256(text.Bytes())
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	w.Header().Set("ETag", tag)
	if status == http.StatusOK && strings.TrimPrefix(r.Header.Get("If-None-Match"), "W/") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	deliver(w, r, status, text.Bytes())
}

// redirect sends the browser to a page below the prefix.
func (s *site) redirect(w http.ResponseWriter, r *http.Request, to string) {
	http.Redirect(w, r, s.Prefix+local(to), http.StatusSeeOther)
}

// local returns a path of this site; for any other URL it returns the path of the first page.
func local(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(to, "//") ||
		strings.ContainsAny(to, "\\\r\n") {
		return "/"
	}
	u.Path = path.Clean(u.Path)
	return u.RequestURI()
}

// problemOf returns the words for an error.
func problemOf(err error) answer.Problem {
	if p, ok := errors.AsType[*apiError](err); ok {
		return answer.Problem(*p)
	}
	return answer.Problem{Status: http.StatusInternalServerError, Title: "This page cannot be shown", Detail: err.Error()}
}
