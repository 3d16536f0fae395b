package pluginproc_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk"
)

// The test binary is the plugin's process as well: its first argument says how it behaves.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if act, ok := acts[os.Args[1]]; ok {
			act()
			return
		}
	}
	goleak.VerifyTestMain(m)
}

// self is the spec of the test binary in a role.
func self(t testing.TB, act string) pluginproc.Spec {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return pluginproc.Spec{Path: path, Args: []string{act}}
}

var acts = map[string]func(){
	"noop": func() { sdk.Serve(noop()) },
}
