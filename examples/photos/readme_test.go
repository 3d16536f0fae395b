package photos

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/internal/exampletest"
)

// programs are ledgerd and draw.
var programs = exampletest.Build("github.com/ledgerd/ledgerd/cmd/ledgerd", "./draw")

func TestMain(m *testing.M) { os.Exit(programs.Run(m)) }

// TestReadme runs the sessions of README.md as they stand there and compares what is printed.
func TestReadme(t *testing.T) {
	home := programs.Home(t)
	for _, session := range exampletest.Sessions(t, 3) {
		home.Repeat(t, session)
	}
	precious, err := os.ReadFile(filepath.Join(home.Dir, "thumbs", "logo-icon.png"))
	if err != nil || string(precious) != "not to be lost\n" {
		t.Errorf("the file that was there before: %q %v", precious, err)
	}
}
