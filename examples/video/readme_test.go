package video

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/exampletest"
)

var programs = exampletest.Build("github.com/ledgerd/ledgerd/cmd/ledgerd")

func TestMain(m *testing.M) { os.Exit(programs.Run(m)) }

// TestReadme runs the sessions of README.md as they stand there and compares what is printed. Sizes differ, and the
// folder.
func TestReadme(t *testing.T) {
	home := programs.Home(t, "clips.sh", "convert.sh", "video.toml")
	home.Set("LEDGERD_DB", "sqlite:"+filepath.Join(home.Dir, "ledger.db"))
	if os.Getenv("LEDGERD_TEST_FFMPEG") == "" {
		standin, err := filepath.Abs("standin")
		if err != nil {
			t.Fatal(err)
		}
		home.Set("PATH", standin+":"+programs.Dir(t)+":"+os.Getenv("PATH"))
	}
	size := regexp.MustCompile(`"bytes":[0-9]+`)
	for _, session := range exampletest.Sessions(t, 2) {
		home.Repeat(t, session, func(s string) string {
			return size.ReplaceAllString(strings.ReplaceAll(s, home.Dir, "~"), `"bytes":SIZE`)
		})
	}
}
