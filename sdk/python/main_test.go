package python_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginproc/acttest"
	"github.com/ledgerd/ledgerd/sdk/python/pythontest"
)

var update = flag.Bool("update", false, "write the descriptor of the protocol anew")

func TestMain(m *testing.M) {
	flag.Parse()
	if err := pythontest.Find(); err != nil && !*update {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	goleak.VerifyTestMain(m)
}

// acts is a plugin that follows the orders of its items.
func acts(args ...string) pluginproc.Spec {
	path, err := filepath.Abs("testdata/acts")
	if err != nil {
		panic(err) // there is no working directory
	}
	return pluginproc.Spec{Path: path, Args: args, StartTimeout: acttest.StartTime,
		Env: []string{"PYTHONDONTWRITEBYTECODE=1"}}
}
