package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/exampletest"
)

var programs = exampletest.Build(".")

func TestMain(m *testing.M) { os.Exit(programs.Run(m)) }

// TestReadme runs the crawlers of README.md, on both databases: no page is checked twice, and none is left. Those that
// select and then mark leave none either.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^.*\./agents .*$`).FindAllString(string(readme), -1)
	if len(lines) != 2 {
		t.Fatalf("the README has %d lines with crawlers", len(lines))
	}
	exampletest.Databases(t, func(t *testing.T, address string) {
		home := programs.Home(t)
		run := func(line string) string {
			return home.Sh(strings.NewReplacer("./agents", "agents", "sqlite:pages.db", "'"+address+"'").Replace(line))
		}
		left := func() string { return run("./agents -db sqlite:pages.db") }
		if said := run(lines[0]) + run(lines[1]) + left(); strings.TrimSpace(said) != "0" {
			t.Errorf("pages that were checked twice, and what was left: %s", said)
		}
		run(lines[0])
		if said := run(strings.ReplaceAll(lines[1], "-agent", "-naive -agent")) + left(); strings.Contains(said, "agents:") ||
			strings.Contains(said, "http") {
			t.Errorf("naive ones: %s", said)
		}
	})
}
