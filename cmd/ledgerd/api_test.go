package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// api starts ledgerd api and returns its address.
func (m *machine) api(args ...string) (p *started, base string) {
	m.t.Helper()
	p = m.start(append([]string{"api", "--listen", "127.0.0.1:0"}, args...)...)
	m.until("it listens", func() bool {
		select {
		case <-p.done:
			m.t.Fatalf("ledgerd api ended\n%s", p.stderr.String())
		default:
		}
		return strings.Contains(p.stderr.String(), `"msg":"listening"`)
	})
	log := p.stderr.String()[strings.Index(p.stderr.String(), `"msg":"listening"`):]
	return p, "http://" + addressForm.FindStringSubmatch(log)[1] + regexp.MustCompile(`"paths":"([^"]+)"`).FindStringSubmatch(log)[1]
}

// TestAPIAsDocumented runs the lines of docs/api.md, and stops the server.
func TestAPIAsDocumented(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		m.run(failure.ExitOK, "db", "migrate")
		m.run(failure.ExitOK, "kind", "set", "page", "--input", "line")
		m.run(failure.ExitOK, "add", "page", "one", "two", "three")
		p, base := m.api("--auth", "none")
		page, err := os.ReadFile("../../docs/api.md")
		must.OK(t, err)
		script := regexp.MustCompile("(?s)```sh\nledgerd api [^\n]*\napi=[^\n]*\n(.*?)```").FindSubmatch(page)
		if script == nil {
			t.Fatal("docs/api.md has no lines to try; this test has lost its object")
		}
		out, err := exec.Command("sh", "-ec", "api="+base+"\n"+string(script[1])).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, want := range []string{`"protocol":1`, `"key":"two"`, `"next":"`, `"code":"no_worker"`, `"code":"bad_filter"`, `"verdict":"added"`,
			`"rounds_done":0`, `"whole":true`, `"state":"held"`,
			`"column":1`} {
			if !strings.Contains(string(out), want) {
				t.Errorf("no %s in\n%s", want, out)
			}
		}
		m.stop(p, syscall.SIGTERM, failure.ExitOK)
	})
}

// answers requires a status for a GET with a token, "" for one without a token.
func (m *machine) answers(url, token string, want int) {
	m.t.Helper()
	r, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, url, nil)
	must.OK(m.t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(r)
	must.OK(m.t, err)
	res.Body.Close()
	if res.StatusCode != want {
		m.t.Errorf("%s: %d, want %d", url, res.StatusCode, want)
	}
}

// newToken makes a token, and returns it with its lines for the config.
func (m *machine) newToken(name string, args ...string) (token, config string) {
	m.t.Helper()
	var made struct{ Token, Config string }
	out := m.run(failure.ExitOK, append([]string{"token", "new", name, "-o", "json"}, args...)...)
	must.OK(m.t, json.Unmarshal([]byte(out), &made))
	return made.Token, made.Config
}

// A new token is accepted as soon as the config has its lines, and is in no log. At SIGHUP a server reads the tokens of
// the config again, whether it also works or not. A token that was removed is refused from then on. A wrong config
// changes nothing. A daemon serves the API while it works, and the pages, also behind a proxy, whether the proxy keeps
// the prefix or removes it.
func TestReread(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		m.run(failure.ExitOK, "db", "migrate")
		one, first := m.newToken("one")
		two, second := m.newToken("two")
		const head = "listen = \"\"\n[ui]\nserve = true\n[api]\nlisten = \"127.0.0.1:0\"\nprefix = \"/x\"\n"
		s := m.site(head + first)
		alone, base := m.api("--config", s.config)
		daemon := s.daemon()
		at := regexp.MustCompile(`"msg":"the API is served","at":"([0-9.:]+)"`).FindStringSubmatch(daemon.stderr.String())
		if at == nil {
			t.Fatalf("no API\n%s", daemon.stderr.String())
		}
		for token, want := range map[string]int{one: 200, "": 401} {
			m.answers("http://"+at[1]+"/api/v1/stats", token, want)
			m.answers("http://"+at[1]+"/x/api/v1/stats", token, want)
		}
		for _, page := range []string{"/x/", "/x/login", "/login"} {
			answer, err := http.Get("http://" + at[1] + page)
			must.OK(t, err)
			text, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(text), `action="/x/login"`) {
				t.Errorf("%s: %s, %v\n%s", page, answer.Status, err, text)
			}
			answer.Body.Close()
		}
		for p, base := range map[*started]string{alone: base, daemon: "http://" + at[1] + "/x/api/v1"} {
			s.write("ledgerd.toml", head+first)
			m.answers(base+"/items", one, 200)
			m.answers(base+"/items", one+"a", 401)
			m.answers(base+"/items", two, 401)
			s.write("ledgerd.toml", head+second+"\nsha257 = 1\n")
			s.signal(p, syscall.SIGHUP)
			m.until("it refuses the wrong config", func() bool {
				return strings.Contains(p.stderr.String(), "going on with the old one")
			})
			m.answers(base+"/items", one, 200)
			s.write("ledgerd.toml", head+second)
			s.signal(p, syscall.SIGHUP)
			m.until("it has read it", func() bool { return strings.Contains(p.stderr.String(), "was read anew") })
			m.answers(base+"/items", one, 401)
			m.answers(base+"/items", two, 200)
			for _, want := range []string{`"key":"api.tokens.two","needs_restart":false`, `"key":"api.tokens.one"`} {
				if !strings.Contains(p.stderr.String(), want) {
					t.Errorf("%q is not in the log\n%s", want, p.stderr.String())
				}
			}
			if strings.Contains(p.stderr.String(), one) || strings.Contains(p.stderr.String(), two) {
				t.Errorf("a token is in the log\n%s", p.stderr.String())
			}
		}
		http.DefaultClient.CloseIdleConnections()
		m.stop(daemon, syscall.SIGTERM, failure.ExitOK)
	})
}

// Fields that the config hides are hidden from all tokens except those of an admin.
func TestHide(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		look, first := m.newToken("look", "--scope", "read,payload")
		admin, second := m.newToken("admin", "--scope", "admin")
		m.run(failure.ExitOK, "db", "migrate")
		m.run(failure.ExitOK, "add", "effect", "s3cret", "--set", "ms=17")
		s := m.site("[plugins.pin]\ncommand = [\"DIR/sick\", \"pin\", \"well\"]\n[api]\nhide = [\"text\"]\n" + first + "\n" +
			second)
		link(t, filepath.Join(s.dir, "sick"))
		m.run(failure.ExitOK, "--config", s.config, "run", "pin", "x", "--set", "code=hunter2") // its plugin marks code
		_, base := m.api("--config", s.config)
		for token, want := range map[string]string{look: "(hidden)", admin: "s3cret"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/items", nil)
			must.OK(t, err)
			r.Header.Set("Authorization", "Bearer "+token)
			res, err := http.DefaultClient.Do(r)
			must.OK(t, err)
			text, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil || !strings.Contains(string(text), `"text":"`+want+`"`) || !strings.Contains(string(text), `"ms":17`) ||
				strings.Contains(string(text), "hunter2") != (token == admin) {
				t.Errorf("%v\n%s", err, text)
			}
		}
		http.DefaultClient.CloseIdleConnections()
	})
}
