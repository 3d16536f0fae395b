package api

import (
	"encoding/json"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// Texts that a database may take for something else, and texts that a header, JSON or a filter may.
var (
	forDatabases = []string{"", "a\x00b", "\xff\xfe", "\xed\xa0\x80", "'; DROP TABLE ledger_items; --", `"\`, "_%*", "1e999",
		"9223372036854775808", strings.Repeat("ä", 3000), "<😀\u0301\u202e>"}
	forParsers = []string{" ", "%00", "key:", "kind:page state:done", `payload.a:"`, "-1", "null", `{"a":`, "../../etc/passwd",
		"a\r\nSet-Cookie: x=1", strings.Repeat("(", 500), "1.1.01a21eb0-fec5-71c7-b63e-dcfb00d536eb", "2026-13-45T00:00:00Z"}
)

// TestHostile: no text in a parameter, a path, a header or a body makes the server fail, and payloads come back as they
// were. Databases get the texts that are for them.
func TestHostile(t *testing.T) {
	test := func(store ledger.Store, texts []string) {
		t.Cleanup(func() { store.Close() })
		s := siteOver(t, ledger.New(store, ledger.Options{}))
		s.add("page", "one")
		for _, text := range texts {
			s.askAll(text)
			s.store(text)
		}
	}
	test(memory.New(memory.Options{}), forParsers)
	lite, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), sqlite.Options{})
	must.OK(t, err)
	test(lite, forDatabases)
	pg, err := postgres.Open(t.Context(), pgtest.Pool(t), postgres.Options{Schema: pgtest.Schema(t)})
	must.OK(t, err)
	test(pg, forDatabases)
}

// askAll gives a text to every parameter of every route that reads.
func (s *site) askAll(text string) {
	s.t.Helper()
	for _, r := range table() {
		if r.Method != http.MethodGet || r.out == reflect.TypeFor[stream]() || r.out == reflect.TypeFor[hints]() {
			continue
		}
		for _, p := range parameters(r.in) {
			path, change := example(r), func(*http.Request) {}
			switch p.in {
			case "query":
				path += "?" + url.Values{p.name: {text}}.Encode()
			case "path":
				path = strings.Replace(r.Path, "{"+p.name+"}", url.PathEscape(text), 1)
			case "header":
				change = header(p.name, text)
			}
			s.served(s.do("all", r.Method, path, "", change), r.Method+" "+path)
		}
	}
}

// served checks that an answer is no error of the server, and that an error about a value names its field. The decoder
// of bodies does not tell which field has a time that cannot be read.
func (s *site) served(got reply, call string) {
	s.t.Helper()
	var p answer.Problem
	if got.StatusCode == http.StatusBadRequest || got.StatusCode == http.StatusUnprocessableEntity {
		must.OK(s.t, json.Unmarshal(got.text, &p))
	}
	if got.StatusCode >= http.StatusInternalServerError || p.Code != "" && p.Field == "" &&
		!strings.HasPrefix(p.Detail, "the body: ") {
		s.t.Errorf("%q: %d %s", call, got.StatusCode, got.text)
	}
}

// store puts a text wherever an item, a claim and an end may have one.
func (s *site) store(text string) {
	s.t.Helper()
	body := func(v any) string {
		text, err := json.Marshal(v)
		must.OK(s.t, err)
		return string(text)
	}
	send := func(path string, v any) (got reply) {
		got = s.do("all", http.MethodPost, path, body(v))
		s.served(got, path+" of "+text)
		return got
	}
	for _, field := range []string{"kind", "scope", "key", "fingerprint", "shard_key", "every", "zone", "due"} {
		item := map[string]any{"kind": "page", "key": "k " + field, "payload": map[string]string{"text": text}}
		item[field] = text
		send("/items", []any{item})
	}
	got := send("/claims", map[string]any{"kind": "page", "agent": text, "limit": 1000})
	if got.StatusCode/100 != 2 {
		got = send("/claims", map[string]any{"kind": "page", "agent": "a", "limit": 1000})
	}
	var claimed struct {
		Leases []struct {
			Token   string
			Key     string
			Payload struct{ Text string }
		}
	}
	got.ok(&claimed)
	for _, l := range claimed.Leases {
		if want := strings.ToValidUTF8(text, "\ufffd"); l.Key != "one" && l.Payload.Text != want {
			s.t.Errorf("a payload of %q came back as %q", text, l.Payload.Text)
		}
		send("/leases/finish", map[string]any{"endings": []any{map[string]any{"token": l.Token, "outcome": "failed",
			"final": true, "code": text, "error": text, "log": text, "worker": text, "output": text}}})
	}
}
