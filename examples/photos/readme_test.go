package photos

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/exampletest"
)

func TestMain(m *testing.M) { os.Exit(programs.Run(m)) }

// programs are ledgerd, and what draws the pictures.
var programs = exampletest.Build("github.com/ledgerd/ledgerd/cmd/ledgerd",
	"github.com/ledgerd/ledgerd/examples/photos/draw")

// TestReadme runs the sessions of README.md as they stand there and compares what is printed.
func TestReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	sessions := regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(sessions) != 3 {
		t.Fatalf("the README has %d sessions, want 3", len(sessions))
	}
	dir, home := programs.Dir(t), t.TempDir()
	for _, session := range sessions {
		var got strings.Builder
		for line := range strings.Lines(session[1]) {
			command, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				continue
			}
			sh := exec.Command("sh", "-c", command)
			sh.Dir = home
			sh.Env = []string{"HOME=" + home, "PATH=" + dir + ":" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "PWD=" + home}
			out, _ := sh.CombinedOutput() // the output has the exit code
			got.WriteString(line + string(out))
		}
		if diff := cmp.Diff(timeless(session[1]), timeless(got.String())); diff != "" {
			t.Errorf("-README +printed\n%s", diff)
		}
	}
	precious, err := os.ReadFile(filepath.Join(home, "thumbs", "logo-icon.png"))
	if err != nil || string(precious) != "not to be lost\n" {
		t.Errorf("the file of somebody else: %q %v", precious, err)
	}
}

// timeless is text in which every duration is the same.
func timeless(s string) string {
	return regexp.MustCompile(`[0-9]+\.[0-9] s\b`).ReplaceAllString(s, "0.1 s")
}
