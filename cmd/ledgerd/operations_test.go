package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// TestGoneLinks runs the script of docs/operations.md for links that have left their list. It cancels no other.
func TestGoneLinks(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	must.OK(t, err)
	script := regexp.MustCompile(`(?m)^    set -eu.*\n(    .*\n)+`).FindString(string(page))
	onFile(t, func(t *testing.T, m *machine) {
		home := t.TempDir()
		must.OK(t, os.WriteFile(filepath.Join(home, "jq"), // tests need none
			[]byte("#!/bin/sh\nexec sed -E 's/.*\"id\":([0-9]+).*/\\1/'\n"), 0o700))
		bash := func(script string) {
			sh := exec.Command("bash", "-c", script)
			sh.Dir, sh.Env = home, append(m.env, "PATH="+home+":"+filepath.Dir(m.program)+":"+os.Getenv("PATH"))
			if out, err := sh.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", script, err, out)
			}
		}
		lines := "https://a.example\r\nHTTP://b.example:80/x\n"
		for i := range 9 {
			lines += fmt.Sprintf("https://c.example/%d\n", i)
		}
		must.OK(t, os.WriteFile(filepath.Join(home, "links"), []byte(lines), 0o600)) // the name of the source
		bash("ledgerd add urlcheck links")
		must.OK(t, os.WriteFile(filepath.Join(home, "links.txt"), []byte(strings.Replace(lines, "https://c.example/8\n",
			"https://new.example\n", 1)), 0o600))
		bash(script)
		keys := m.run(failure.ExitOK, "ls", "--columns", "key", "-o", "csv")
		if strings.Count(keys, "://") != 10 || strings.Contains(keys, "c.example/8") {
			t.Errorf("left are\n%s", keys)
		}
	})
}
