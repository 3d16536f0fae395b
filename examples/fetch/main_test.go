package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

func TestMain(m *testing.M) { sdktest.Main(m, plugin()) }

func TestFetch(t *testing.T) {
	server, dir := serve(t), t.TempDir()
	h := sdktest.New(t, plugin(), sdktest.Options{Config: Config{Dir: dir}})
	r := h.Run(sdktest.Task{Payload: In{URL: server + "/whole.txt"}})
	got := sdktest.Decode[Out](t, r)
	if content, err := os.ReadFile(got.Path); len(content) != size || got.Bytes != size {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestNotFound(t *testing.T) {
	server := serve(t)
	h := sdktest.New(t, plugin(), sdktest.Options{Config: Config{Dir: t.TempDir()}})
	r := h.Run(sdktest.Task{Payload: In{URL: server + "/missing.txt"}})
	if r.Outcome != "failed" || !r.Final || r.Code != "not_found" {
		t.Errorf("%+v", r)
	}
}

// Killed in the middle, it leaves no half of a file, and the next attempt does it all.
func TestKilled(t *testing.T) {
	server, dir := serve(t), t.TempDir()
	h := sdktest.New(t, plugin(), sdktest.Options{Config: Config{Dir: dir}})
	task := sdktest.Task{Payload: In{URL: server + "/stalls-once.txt"}, Fault: sdktest.KillPlugin, AtProgress: 1}
	if r := h.Run(task); r.Outcome != "crashed" {
		t.Fatalf("%+v", r)
	}
	if whole, _ := filepath.Glob(filepath.Join(dir, "*.txt")); len(whole) > 0 {
		t.Error("half of the file is there")
	}
	task.Attempt, task.Fault = 2, sdktest.None
	content, err := os.ReadFile(sdktest.Decode[Out](t, h.Run(task)).Path)
	if err != nil || len(content) != size {
		t.Errorf("%d bytes, %v", len(content), err)
	}
}

// Each fault, in the middle of a download that would never end.
func TestFaults(t *testing.T) {
	tests := map[string]struct {
		fault sdktest.Fault
		want  string
	}{
		"cancelled":    {sdktest.Cancel, "cancelled"},
		"lease lost":   {sdktest.LoseLease, "released"},
		"ledgerd dies": {sdktest.KillHost, "lost"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := serve(t)
			h := sdktest.New(t, plugin(), sdktest.Options{Config: Config{Dir: t.TempDir()}})
			r := h.Run(sdktest.Task{Payload: In{URL: server + "/stalls.txt"}, Fault: test.fault, AtProgress: 1})
			if r.Outcome != test.want {
				t.Errorf("%+v", r)
			}
		})
	}
}

// The report was lost, so the item is delivered once more: that must do no harm.
func TestTwice(t *testing.T) {
	server, dir := serve(t), t.TempDir()
	h := sdktest.New(t, plugin(), sdktest.Options{Config: Config{Dir: dir}})
	r := h.Run(sdktest.Task{Payload: In{URL: server + "/whole.txt"}, Fault: sdktest.Deliver2})
	files, err := os.ReadDir(dir)
	if r.Outcome != "done" || len(files) != 1 || err != nil {
		t.Errorf("%+v, %v %v", r, files, err)
	}
}

func TestTimeLimit(t *testing.T) {
	server := serve(t)
	h := sdktest.New(t, plugin(), sdktest.Options{Config: Config{Dir: t.TempDir()}})
	r := h.Run(sdktest.Task{Payload: In{URL: server + "/stalls.txt"}, Timeout: 50 * time.Millisecond})
	if r.Outcome != "failed" || r.Final {
		t.Errorf("%+v", r)
	}
}

// No URL leads out of the folder, and no other URL has the same file.
func TestName(t *testing.T) {
	names := map[string]bool{}
	for text, want := range map[string]string{"http://h/a/b.txt": "b.txt", "http://h/c/b.txt": "b.txt",
		"http://h/b.txt?page=2": "b.txt", "http://h": "index", "http://h/": "index", "http://h/..": "index",
		"http://h/a/..": "index", "http://h/a/%2e%2e": "index", "http://h/a/.": "a"} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got := name(u)
		if _, base, _ := strings.Cut(got, "-"); base != want || names[got] {
			t.Errorf("%s: %q, want one of its own with %q", text, got, want)
		}
		names[got] = true
	}
}

func TestConformance(t *testing.T) {
	sdktest.Conformance(t, plugin(), sdktest.Options{Config: Config{Dir: t.TempDir()}})
}

func TestDescription(t *testing.T) { sdktest.Golden(t, plugin()) }

const size = 256 << 10

// serve has files: whole ones, some that stall in the middle, and some that do so once.
func serve(t *testing.T) (address string) {
	var stalled atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/stalls.txt", r.URL.Path == "/stalls-once.txt" && !stalled.Swap(true):
			_, _ = w.Write(make([]byte, size/2)) // the client may go away
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case strings.HasPrefix(r.URL.Path, "/missing"):
			http.NotFound(w, r)
		default:
			_, _ = w.Write(make([]byte, size))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}
