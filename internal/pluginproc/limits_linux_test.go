package pluginproc_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk"
)

func init() { acts["glutton"] = func() { sdk.Serve(glutton()) } }

// taken is what a process of the glutton got.
type taken struct {
	Files    int    `json:"files"`
	Cores    int    `json:"cores"`
	MemLimit string `json:"mem_limit"`
	PID      int    `json:"pid"`
}

// glutton takes the resources that its items name.
func glutton() *sdk.Plugin {
	return sdk.New("glutton", "0.1.0", func(_ context.Context, _ *struct{}, it sdk.Item[script]) (taken, error) {
		got := taken{Cores: runtime.NumCPU(), MemLimit: os.Getenv("GOMEMLIMIT"), PID: os.Getpid()}
		n, _ := strconv.Atoi(it.Payload.Text)
		switch it.Payload.Do {
		case "memory":
			hold = append(hold, make([]byte, n<<20))
			for i := 0; i < n<<20; i += 1 << 12 {
				hold[len(hold)-1][i] = 1
			}
		case "files":
			for {
				f, err := os.Open(os.DevNull)
				if errors.Is(err, syscall.EMFILE) {
					return got, nil
				}
				leaked = append(leaked, f)
				got.Files++
			}
		case "processes":
			for range n {
				if err := exec.Command("sleep", "600").Start(); err != nil {
					return got, err
				}
			}
		}
		return got, nil
	})
}

var (
	hold   [][]byte
	leaked []*os.File
)

func limited(t *testing.T, l pluginproc.Limits) *host {
	spec := self(t, "glutton")
	spec.Limits = l
	return start(t, spec, `{}`)
}

func (h *host) taken(id int64) (got taken) {
	h.t.Helper()
	must.OK(h.t, json.Unmarshal(h.result(id).Output, &got))
	return got
}

// A process that grows is ended; one that stays below its limit is not.
func TestMemoryLimit(t *testing.T) {
	h := limited(t, pluginproc.Limits{Memory: 150 << 20})
	h.send(1, "memory 10")
	if got := h.taken(1); got.MemLimit != strconv.Itoa((150<<20)/10*9) {
		t.Errorf("GOMEMLIMIT=%s", got.MemLimit)
	}
	h.send(2, "memory 200")
	c := h.crash()
	if !errors.Is(c, pluginproc.ErrLimit) || !strings.Contains(c.Error(), "of memory, 150 MiB are allowed") {
		t.Errorf("%v", c)
	}
}

// Its children count as well, and end with it.
func TestProcessLimit(t *testing.T) {
	h := limited(t, pluginproc.Limits{Processes: 4})
	h.send(1, "processes 3")
	h.taken(1)
	h.send(2, "processes 20")
	c := h.crash()
	if !errors.Is(c, pluginproc.ErrLimit) || !strings.Contains(c.Error(), "processes, 4 are allowed") {
		t.Errorf("%v", c)
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must.OK(t, err)
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if _, rest, _ := strings.Cut(string(stat), ") "); err == nil && strings.Fields(rest)[2] == strconv.Itoa(c.PID) &&
			!strings.HasPrefix(rest, "Z") {
			t.Errorf("%s is left: %s", path, stat)
		}
	}
}

// Files are counted by the kernel: the process sees its limit, and lives.
func TestFileLimit(t *testing.T) {
	h := limited(t, pluginproc.Limits{OpenFiles: 64})
	h.send(1, "files")
	if got := h.taken(1); got.Files < 20 || got.Files >= 64 {
		t.Errorf("%d files could be opened", got.Files)
	}
}

// The cores are limited from the beginning, and ours are what they were.
func TestCoreLimit(t *testing.T) {
	before := runtime.NumCPU()
	h := limited(t, pluginproc.Limits{CPU: 1})
	h.send(1, "cores")
	if got := h.taken(1); got.Cores != 1 {
		t.Errorf("%d cores", got.Cores)
	}
	if all := limited(t, pluginproc.Limits{CPU: 4096}); all.PID() > 0 {
		all.send(1, "cores")
		if got := all.taken(1); got.Cores != before {
			t.Errorf("%d of %d cores", got.Cores, before)
		}
	}
	threads, err := filepath.Glob("/proc/self/task/*/status")
	must.OK(t, err)
	lists := map[string]bool{}
	for _, path := range threads {
		if status, err := os.ReadFile(path); err == nil { // else it has ended
			_, list, _ := strings.Cut(string(status), "Cpus_allowed_list:")
			list, _, _ = strings.Cut(list, "\n")
			lists[list] = true
		}
	}
	if len(lists) != 1 {
		t.Errorf("threads of this process may run on %v", lists)
	}
}

// A plugin that is too large from the beginning does not start, and the error has the reason.
func TestMemoryLimitAtStart(t *testing.T) {
	spec := self(t, "obese")
	spec.Limits.Memory = 100 << 20
	_, err := pluginproc.Start(t.Context(), spec)
	if se := (*pluginproc.StartError)(nil); !errors.As(err, &se) || !errors.Is(err, pluginproc.ErrLimit) ||
		!strings.Contains(err.Error(), "100 MiB are allowed") {
		t.Errorf("%v", err)
	}
}

func init() {
	acts["obese"] = func() {
		hold = append(hold, make([]byte, 300<<20))
		for i := 0; i < len(hold[0]); i += 1 << 12 {
			hold[0][i] = 1
		}
		select {}
	}
}
