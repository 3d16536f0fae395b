package node_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginproc/acttest"
)

func TestMain(m *testing.M) {
	if _, err := exec.LookPath("node"); err != nil {
		fmt.Fprintln(os.Stderr, "these tests need Node 18 or later: install it, then run make node-packages")
		os.Exit(1)
	}
	if _, err := os.Stat("node_modules/.package-lock.json"); err != nil {
		fmt.Fprintln(os.Stderr, "these tests need the packages of package-lock.json: run make node-packages")
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// acts is a plugin that follows the orders of its items; doubtful is one whose effects must not be
// repeated.
func acts(args ...string) pluginproc.Spec {
	path, err := filepath.Abs("testdata/acts")
	if err != nil {
		panic(err) // there is no working directory
	}
	return pluginproc.Spec{Path: path, Args: args, StartTimeout: acttest.StartTime}
}
