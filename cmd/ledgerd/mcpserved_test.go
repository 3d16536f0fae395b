package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ledgerd/ledgerd/internal/failure"
)

// withToken sends a token with each request.
type withToken string

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(w))
	return http.DefaultTransport.RoundTrip(r)
}

// The servers of the API also serve agents, also behind a proxy's prefix.
func TestMCPServed(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		m.run(failure.ExitOK, "db", "migrate")
		m.run(failure.ExitOK, "kind", "set", "task", "--input", "line")
		token, config := m.newToken("box", "--scope", "read,add,work", "--agent", "box-")
		s := m.site("listen = \"\"\n[api]\nlisten = \"127.0.0.1:0\"\nprefix = \"/x\"\n" + config)
		_, base := m.api("--config", s.config)
		daemon := s.daemon()
		at := regexp.MustCompile(`"msg":"the API is served","at":"([0-9.:]+)"`).FindStringSubmatch(daemon.stderr.String())
		if at == nil {
			t.Fatalf("no API\n%s", daemon.stderr.String())
		}
		for i, at := range []string{strings.TrimSuffix(base, "/api/v1"), "http://" + at[1], "http://" + at[1] + "/x"} {
			key := string(rune('a' + i))
			c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
			connect := func(token string) (*mcp.ClientSession, error) {
				return c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: at + "/mcp?agent=box-" + key,
					HTTPClient: &http.Client{Transport: withToken(token)}}, nil)
			}
			if _, err := connect("ldg_wrong"); err == nil {
				t.Errorf("%s: a wrong token was taken", at)
			}
			session, err := connect(token)
			if err != nil {
				t.Fatal(at, err)
			}
			defer session.Close()
			for _, call := range []*mcp.CallToolParams{
				{Name: "add", Arguments: map[string]any{"items": []any{map[string]any{"kind": "task", "key": key}}}},
				{Name: "claim", Arguments: map[string]any{"kind": "task", "wait_s": 30}},
			} {
				if res, err := session.CallTool(t.Context(), call); err != nil || res.IsError {
					t.Errorf("%s %s: %v, %v", at, call.Name, res, err)
				}
			}
		}
		if n := m.count("kind:task state:leased"); n != 3 {
			t.Errorf("%d items were claimed, want 3", n)
		}
	})
}
