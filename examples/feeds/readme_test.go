package feeds

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/exampletest"
)

var programs = exampletest.Build("github.com/ledgerd/ledgerd/cmd/ledgerd", "./blogs")

func TestMain(m *testing.M) { os.Exit(programs.Run(m)) }

// TestReadme runs the sessions of README.md as they stand there and compares what is printed, and what the server was
// asked.
func TestReadme(t *testing.T) {
	home := programs.Home(t, "site", "publish.sh")
	home.Set("LEDGERD_DB", "sqlite:"+filepath.Join(home.Dir, "ledger.db"))
	blogs := programs.Serve(t, "blogs", "-port", "0", filepath.Join(home.Dir, "site"))
	for _, session := range exampletest.Sessions(t, 2) {
		home.Repeat(t, strings.ReplaceAll(session, "127.0.0.1:8026", blogs.Addr))
	}
	asked := blogs.End()
	slices.Sort(asked[3:]) // in the second round the order is open
	want := []string{"GET /bakery.xml 200", "GET /old-tram.json 301", "GET /tram.json 200", "GET /bakery.xml 200",
		"GET /tram.json 304"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}
