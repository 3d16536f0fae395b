package push

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReadme runs the sessions of README.md as they stand there and compares what is printed.
func TestReadme(t *testing.T) {
	onBoth(t, func(t *testing.T, s *site) {
		readme, err := os.ReadFile("README.md")
		if err != nil {
			t.Fatal(err)
		}
		users, err := os.ReadFile("users.sql")
		if err != nil {
			t.Fatal(err)
		}
		dir := programs.Dir(t)
		for statement := range strings.SplitSeq(string(users), ";\n") {
			s.exec(statement)
		}
		s.run(0, nil, "db", "migrate")
		home := t.TempDir()
		if err := os.CopyFS(filepath.Join(home, "lists"), os.DirFS("lists")); err != nil {
			t.Fatal(err)
		}
		sessions := regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
		if len(sessions) != 3 {
			t.Fatalf("the README has %d sessions", len(sessions))
		}
		for _, session := range sessions {
			var got strings.Builder
			for line := range strings.Lines(session[1]) {
				command, ok := strings.CutPrefix(line, "$ ")
				if !ok {
					continue
				}
				sh := exec.CommandContext(t.Context(), "sh", "-c", command)
				sh.Dir = home
				sh.Env = []string{"HOME=" + home, "PATH=" + dir + ":" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "LEDGERD_DB=" +
					s.address}
				out, _ := sh.CombinedOutput() // the output has the exit code
				got.WriteString(line + string(out))
			}
			if diff := cmp.Diff(session[1], got.String()); diff != "" {
				t.Errorf("-README +printed\n%s", diff)
			}
		}
	})
}
