package hostcheck

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger/finding"
)

// A port is fine if it is free, or if a daemon answers there. Another user of the port is reported, and so
// is an address that others reach.
func TestPort(t *testing.T) {
	answer := func(text string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/livez" {
				fmt.Fprint(w, text)
			}
		}))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	defer silent.Close()
	hangs := silent.Addr().String() // takes connections, and never answers
	for _, c := range []struct {
		address string
		level   finding.Level
		what    string
	}{
		{"", finding.LevelOK, "listens on none"},
		{"127.0.0.1:0", finding.LevelOK, "is free"},
		{"localhost:0", finding.LevelOK, "is free"},
		{answer("ok\n"), finding.LevelOK, "a daemon answers on "},
		{answer("welcome"), finding.LevelWarning, "is in use, and no daemon that is well answers there"},
		{hangs, finding.LevelWarning, "is in use"},
		{"192.0.2.1:7373", finding.LevelWarning, "is not a loopback address"},
	} {
		found := Port(t.Context(), c.address)
		f := found[0]
		if f.Level != c.level || !strings.Contains(f.What, c.what) || f.Check != "port" ||
			(f.Level != finding.LevelOK) != (f.Why != "" && f.Fix != "") {
			t.Errorf("%q: %+v", c.address, f)
		}
		if c.address == "192.0.2.1:7373" && (len(found) != 2 || !strings.Contains(found[1].What, "cannot listen on")) {
			t.Errorf("an address of another machine: %+v", found)
		}
	}
}
