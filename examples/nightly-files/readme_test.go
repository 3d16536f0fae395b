package nightlyfiles

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/exampletest"
)

var programs = exampletest.Build("github.com/ledgerd/ledgerd/cmd/ledgerd")

func TestMain(m *testing.M) { os.Exit(programs.Run(m)) }

// TestReadme runs the line of README.md that starts four machines at once, and the one for later on the same day: each
// file has one attempt.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	atOnce := regexp.MustCompile(`(?m)^for machine in .*$`).FindString(string(readme))
	later := regexp.MustCompile(`(?m)^(ledgerd run .*?) +# (.*)$`).FindStringSubmatch(string(readme))
	if atOnce == "" || later == nil {
		t.Fatal("the README has no such lines")
	}
	// A time zone in which it is noon, so that no day ends meanwhile. The sign of Etc/GMT is the opposite of the usual
	// one.
	zone := fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-12)
	exampletest.Databases(t, func(t *testing.T, address string) {
		home := programs.Home(t, "../inbox")
		home.Set("LEDGERD_DB", address)
		here := func(line string) string { return home.Sh(strings.ReplaceAll(line, "Europe/Berlin", zone)) }
		if said := here(atOnce); strings.Count(said, "done 9   failed 4") == 0 {
			t.Errorf("the four machines printed\n%s", said)
		}
		if said := here(later[1]); !strings.Contains(said, later[2]) {
			t.Errorf("later it printed, without %q,\n%s", later[2], said)
		}
		attempts := strings.Count(here("ledgerd -q ls --all -o csv --columns attempt"), "1\n")
		if verified := here("ledgerd db verify && echo sound"); attempts != 13 || !strings.HasSuffix(verified, "sound\n") {
			t.Errorf("%d of 13 files have one attempt\n%s", attempts, verified)
		}
	})
}
