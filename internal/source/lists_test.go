package source

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/ledger"
)

// TestURLList: a list that a URL gives, its bad lines, and a server that fails.
func TestURLList(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		var broken atomic.Bool
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if broken.Load() {
				http.Error(w, "no", http.StatusInternalServerError)
				return
			}
			fmt.Fprint(w, "# links\nhttps://a.example/\nnot a url\nhttps://b.example/x\n")
		}))
		defer server.Close()
		defer http.DefaultClient.CloseIdleConnections()
		address := strings.Replace(server.URL, "http://", "http://me:secret@", 1)
		var log bytes.Buffer
		s := p.start(t, config.Source{Name: "links", Type: "list", URL: address, Schedule: "1s"}, func(c *Config) {
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		if l := s.look(); l.Err != nil || l.Verdicts[ledger.VerdictAdded] != 2 || l.Bad != 1 {
			t.Fatalf("%+v", l)
		}
		it, err := p.Find(t.Context(), "check", "", "https://b.example/x")
		if err != nil || it.Source != "links:4" {
			t.Errorf("source %q, %v; want links:4", it.Source, err)
		}
		s.look()
		s.look()
		broken.Store(true)
		s.until("the server fails", func(l Look) bool { return l.Err != nil })
		s.look() // then the status is of the one before
		if text := s.Status().Error; !strings.Contains(text, "500") || strings.Contains(text, "secret") {
			t.Errorf("error %q", text)
		}
		s.stop()
		if n := strings.Count(log.String(), "makes no item"); n != 1 {
			t.Errorf("the bad line was told %d times\n%s", n, log.String())
		}
	})
}

// TestSlowList: the lines that came before the time was over are added.
func TestSlowList(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "https://a.example/\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}))
		defer server.Close()
		defer http.DefaultClient.CloseIdleConnections()
		s := p.start(t, config.Source{Name: "links", Type: "list", URL: server.URL, Schedule: "1s"},
			func(c *Config) { c.fetchTime = 200 * time.Millisecond })
		l := s.until("a line has come", func(l Look) bool { return l.Found > 0 })
		if l.Err == nil || l.Verdicts[ledger.VerdictAdded] != 1 {
			t.Errorf("%+v", l)
		}
		s.stop()
	})
}

// TestFileList: a list in a file that grows.
func TestFileList(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		path := filepath.Join(t.TempDir(), "links.txt")
		write(t, path, "https://a.example/\n")
		s := p.start(t, config.Source{Name: "links", Type: "list", Path: path, Schedule: "1s"})
		s.look()
		write(t, path, "https://a.example/\nhttps://b.example/\n")
		l := s.until("the new line is added", func(l Look) bool { return l.Verdicts[ledger.VerdictAdded] == 1 })
		if l.Verdicts[ledger.VerdictKnown] != 1 {
			t.Errorf("%+v", l)
		}

		must.OK(t, os.WriteFile(path, []byte("https://a.example/\nhttps://c.exam"), 0o600))
		s.until("a part of a line is seen", func(l Look) bool { return l.Young == 1 && l.Found == 1 })
		s.until("it is whole after a while", func(l Look) bool { return l.Young == 0 && l.Found == 2 })
	})
}

// TestCutList: the line at which a list is cut that is too long makes no item.
func TestCutList(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "https://a.example/\nhttps://b.example/long\n")
		}))
		defer server.Close()
		defer http.DefaultClient.CloseIdleConnections()
		s := p.start(t, config.Source{Name: "links", Type: "list", URL: server.URL, Schedule: "1s"},
			func(c *Config) { c.maxList = 38 })
		if l := s.look(); l.Err == nil || l.Found != 1 {
			t.Errorf("%+v", l)
		}
		s.stop()
	})
}

// TestQuery: rows become items; the column is the one that is named, else "key", else the first.
func TestQuery(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		for i, c := range []struct{ key, text string }{
			{"", "SELECT 'https://a.example/0' AS link"},
			{"", "SELECT 'x' AS other, 'https://a.example/1' AS key"},
			{"link", "SELECT 'x' AS other, 'https://a.example/2' AS link"},
		} {
			spec := config.Source{Name: fmt.Sprint("rows-", i), Type: "query", Query: c.text, Key: c.key, Schedule: "hour"}
			l := p.start(t, spec, func(conf *Config) {
				conf.Query = func(ctx context.Context) (*query.Query, error) { return p.query(ctx, c.text) }
			}).look()
			if _, err := p.Find(t.Context(), "check", "", fmt.Sprint("https://a.example/", i)); l.Err != nil || err != nil {
				t.Errorf("%s: %+v, %v", c.text, l, err)
			}
		}
	})
}
