package exec

import (
	"fmt"
	"os"
	osexec "os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

func TestMain(m *testing.M) { sdktest.Main(m, Plugin()) }

// host runs a command as a plugin's process; further settings are names and values in turns.
func host(t *testing.T, command []string, settings ...any) *sdktest.Host {
	t.Helper()
	config := map[string]any{"command": command}
	for i := 0; i < len(settings); i += 2 {
		config[settings[i].(string)] = settings[i+1]
	}
	return sdktest.New(t, Plugin(), sdktest.Options{Config: config})
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

const patience = 10 * time.Second // for what takes at most two

// pids reads the process numbers that a script has written into a file, one on a line.
func pids(t *testing.T, file string, want int) []int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for _, word := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pid)
	}
	if len(all) != want {
		t.Fatalf("%d processes were started, want %d", len(all), want)
	}
	return all
}

// gone waits until processes have ended.
func gone(t *testing.T, all []int) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	late := time.After(patience)
	for _, pid := range all {
		for alive(t, pid) {
			select {
			case <-look.C:
			case <-late:
				t.Fatalf("process %d is still there after %v", pid, patience)
			}
		}
	}
}

// alive says whether a process exists and is no zombie.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	out, err := osexec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	if _, ended := err.(*osexec.ExitError); err != nil && !ended {
		t.Fatal(err)
	}
	stat := strings.TrimSpace(string(out))
	return stat != "" && stat[0] != 'Z'
}
