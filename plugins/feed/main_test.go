package feed

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/internal/rawtest"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

func TestMain(m *testing.M) { sdktest.Main(m, Plugin()) }

// reader returns a host that runs the plugin in the test's process. The plugin may use servers on loopback.
func reader(t testing.TB, change ...func(*Config)) *sdktest.Host {
	t.Helper()
	cfg := Config{AllowPrivate: true}
	for _, c := range change {
		c(&cfg)
	}
	return sdktest.New(t, Plugin(), sdktest.Options{Config: cfg, InProcess: true})
}

func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// raw starts a server that reads the head of a request and then runs talk. It returns the server's URL.
func raw(t testing.TB, talk func(net.Conn)) string {
	t.Helper()
	return "http://" + rawtest.Serve(t, func(conn net.Conn) {
		if _, err := conn.Read(make([]byte, 4<<10)); err == nil {
			talk(conn)
		}
	})
}

// rss returns a feed with these items.
func rss(items ...string) string {
	return `<?xml version="1.0"?><rss version="2.0"><channel><title>A feed</title>` + strings.Join(items, "\n") +
		`</channel></rss>`
}

func entry(guid, title string) string {
	return fmt.Sprintf("<item><guid>%s</guid><title>%s</title><link>http://a.example/%[1]s</link></item>", guid, title)
}

func gzipped(w http.ResponseWriter, text string, times int) {
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	for range times {
		if _, err := z.Write([]byte(text)); err != nil {
			return // the client has stopped reading
		}
	}
	_ = z.Close() // the client may have stopped reading
}

// articles returns the emitted articles of a result.
func articles(t testing.TB, r sdktest.Result) []Article {
	t.Helper()
	all := make([]Article, len(r.Emitted))
	for i, c := range r.Emitted {
		if c.Kind != "article" {
			t.Errorf("emitted %+v", c)
		}
		must.OK(t, json.Unmarshal(c.Payload.(json.RawMessage), &all[i]))
	}
	return all
}

// keys returns the keys of the emitted items, in order.
func keys(r sdktest.Result) string {
	var all []string
	for _, c := range r.Emitted {
		all = append(all, c.Key)
	}
	return strings.Join(all, " ")
}
