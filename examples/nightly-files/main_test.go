package nightlyfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/internal/exampletest"
	"github.com/ledgerd/ledgerd/sdk"
)

// The test binary is every program of these tests: a machine whose clock is off, or a plugin.
func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == "ledgerd-plugin-"+pluginName:
		sdk.Main(gated())
	case len(os.Args) > 1 && os.Args[1] == "daily":
		if err := daily(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(programs.Run(m))
}

// programs is ledgerd.
var programs = exampletest.Build("github.com/ledgerd/ledgerd/cmd/ledgerd")
