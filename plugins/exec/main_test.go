package exec

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

func TestMain(m *testing.M) { sdktest.Main(m, Plugin()) }

// host runs a command as a plugin's process; further settings are names and values in turns.
func host(t *testing.T, command []string, settings ...any) *sdktest.Host {
	t.Helper()
	config, secrets := map[string]any{"command": command}, map[string]string{}
	for i := 0; i < len(settings); i += 2 {
		if name := settings[i].(string); name == "secret_env" {
			secrets[name] = settings[i+1].(string)
		} else {
			config[name] = settings[i+1]
		}
	}
	p := Plugin()
	p.Concurrency = 4 // on a machine with one core, too
	return sdktest.New(t, p, sdktest.Options{Config: config, Secrets: secrets})
}

// shell is a command that runs a script.
func shell(script string) []string {
	return []string{"sh", "-c", strings.NewReplacer("{", "{{", "}", "}}").Replace(script)}
}

// one runs a script for one item.
func one(t *testing.T, script string, settings ...any) sdktest.Result {
	t.Helper()
	return host(t, shell(script), settings...).Run(sdktest.Task{Key: "k"})
}

// pids reads the process numbers that a script has written into a file, one on a line.
func pids(t *testing.T, file string, want int) []int {
	t.Helper()
	text, err := os.ReadFile(file)
	must.OK(t, err)
	var all []int
	for word := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(word)
		must.OK(t, err)
		all = append(all, pid)
	}
	if len(all) != want {
		t.Fatalf("%d processes were started, want %d", len(all), want)
	}
	return all
}
