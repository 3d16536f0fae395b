package nightlyfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/internal/exampletest"
	"github.com/ledgerd/ledgerd/sdk"
)

// The test binary is every program of these tests: a worker of one of the ways, or a plugin.
func TestMain(m *testing.M) {
	role := map[string]func([]string) error{"worker": work, "daily": daily}
	switch {
	case filepath.Base(os.Args[0]) == "ledgerd-plugin-"+pluginName:
		sdk.Main(gated())
	case len(os.Args) > 1 && role[os.Args[1]] != nil:
		if err := role[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(programs.Run(m))
}

// programs is ledgerd.
var programs = exampletest.Build("github.com/ledgerd/ledgerd/cmd/ledgerd")
