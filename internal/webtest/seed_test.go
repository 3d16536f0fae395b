package webtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A cause is why some items of the seed failed.
type cause struct {
	items       int
	code, error string
}

// causes are the causes of an outage.
var causes = []cause{
	{6412, "http_503", "503 Service Unavailable from assets.example"},
	{2087, "timeout", "no answer within 30s"},
	{1024, "tls", "certificate of cdn.example has expired"},
	{431, "too_large", "the page has more than 10 MiB"},
	{46, "bad_encoding", "the text is no UTF-8"},
}

// seed makes a ledger on the day after an outage: 10,000 dead items of five causes, mails in doubt, articles for
// people, reports of every day, and items that are done, leased, due later and ready.
func (l ledgerURL) seed() error {
	for _, args := range [][]string{
		{"db", "migrate"},
		{"kind", "set", "page", "--input", "line"},
		{"kind", "set", "mail", "--input", "line", "--on-lost", "doubt"},
		{"kind", "set", "article", "--input", "line"},
		{"kind", "set", "report", "--input", "line"},
	} {
		if _, err := l.do(nil, args...); err != nil {
			return err
		}
	}
	for _, list := range []struct {
		kind, key string
		items     int
		flags     []string
	}{
		{"mail", "reader-%d@mail.example", 23, nil},
		{"page", "https://assets.example/p/%d/", 10000, []string{"--set", "width=1200"}},
		{"article", "drafts/%d.md", 14, []string{"--set", "title=A title"}},
		{"report", "reports/%d", 5, []string{"--every", "day"}},
	} {
		if err := l.add(list.kind, list.key, list.items, list.flags...); err != nil {
			return err
		}
	}
	// The leases of the mails expire after a second, so the mails are in doubt then.
	if _, err := l.claim("mail", 23, "--lease", "1s"); err != nil {
		return err
	}
	for _, c := range causes {
		tokens, err := l.claim("page", c.items)
		if err != nil {
			return err
		}
		if err := l.finish(tokens, "--outcome", "permanent", "--code", c.code, "--error", c.error); err != nil {
			return err
		}
	}
	tokens, err := l.claim("article", 6)
	if err != nil {
		return err
	}
	if err := l.finish(tokens[:4], "--result", `{"verdict":"publish"}`); err != nil {
		return err
	}
	if tokens, err = l.claim("report", 5); err != nil {
		return err
	}
	if err := l.finish(tokens[:3]); err != nil {
		return err
	}
	if err := l.add("page", "https://assets.example/later/%d/", 120, "--due", "2h"); err != nil {
		return err
	}
	if err := l.add("page", "https://assets.example/new/%d/", 60); err != nil {
		return err
	}
	return eventually("the mails are in doubt", func() (bool, error) {
		if _, err := l.do(nil, "finish", "--outcome", "released", "--expired"); err != nil {
			return false, err
		}
		doubt, err := l.do(nil, "ls", "--state", "doubt", "--output", "jsonl")
		return strings.Count(doubt, "\n") == 23, err
	})
}

// eventually polls until a condition holds that depends on other processes. Between two polls it sleeps five times as
// long as a poll takes, at most 1 s: most of them start a program. After the deadline it returns an error.
func eventually(what string, holds func() (bool, error)) error {
	over := time.After(deadline)
	for {
		began := time.Now()
		if yes, err := holds(); yes || err != nil {
			return err
		}
		select {
		case <-time.After(min(max(50*time.Millisecond, 5*time.Since(began)), time.Second)):
		case <-over:
			return fmt.Errorf("not within %v: %s", deadline, what)
		}
	}
}

// add adds items. key is a format with the number of the item, from 1.
func (l ledgerURL) add(kind, key string, items int, flags ...string) error {
	var keys strings.Builder
	for i := range items {
		fmt.Fprintf(&keys, key+"\n", i+1)
	}
	_, err := l.do(strings.NewReader(keys.String()), append([]string{"add", kind, "-"}, flags...)...)
	return err
}

// claim leases items and returns their tokens.
func (l ledgerURL) claim(kind string, items int, flags ...string) (tokens []string, err error) {
	out, err := l.do(nil, append([]string{"claim", kind, "--agent", "host-a", "--limit", fmt.Sprint(items),
		"--output", "jsonl"}, flags...)...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		var c struct{ Token string }
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return nil, err
		}
		tokens = append(tokens, c.Token)
	}
	if len(tokens) != items {
		return nil, fmt.Errorf("%d of %d items of %s were claimed", len(tokens), items, kind)
	}
	return tokens, nil
}

// finish ends claims.
func (l ledgerURL) finish(tokens []string, flags ...string) error {
	_, err := l.do(nil, append(append([]string{"finish"}, tokens...), flags...)...)
	return err
}

// write makes a file and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(at, []byte(text), 0o600))
	return at
}
