package feeds

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/exampletest"
)

func TestMain(m *testing.M) { os.Exit(programs.Run(m)) }

// programs are ledgerd and the server.
var programs = exampletest.Build("github.com/ledgerd/ledgerd/cmd/ledgerd", "./blogs")

// ledgerd starts the program on a ledger.
func ledgerd(t *testing.T, address string, args ...string) *exampletest.Program {
	t.Helper()
	cmd := exec.Command(programs.Path(t, "ledgerd"), args...)
	cmd.Env = []string{"LEDGERD_DB=" + address, "LEDGERD_KINDS_FEED_WITH_ALLOW_PRIVATE=true", "HOME=" + t.TempDir(),
		"XDG_DATA_HOME=" + t.TempDir(),
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	return exampletest.Start(t, cmd)
}

// town has blogs that grow.
type town struct {
	*httptest.Server
	mu      sync.Mutex
	blogs   [][]string // the ids of each one's entries
	same    int        // answers without a change
	touched chan struct{}
}

func newTown(t *testing.T, blogs int) *town {
	v := &town{blogs: make([][]string, blogs)}
	v.Server = httptest.NewServer(v)
	t.Cleanup(v.Close)
	return v
}

func (v *town) grow(entries int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.touched = make(chan struct{}, 1000) // there is no reader now
	for i := range v.blogs {
		for range rand.IntN(entries) + 1 {
			v.blogs[i] = append(v.blogs[i], fmt.Sprintf("%d-%d", i, len(v.blogs[i])))
		}
	}
}

func (v *town) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	select {
	case v.touched <- struct{}{}:
	default:
	}
	var n int
	if _, err := fmt.Sscanf(r.URL.Path, "/%d", &n); err != nil || n >= len(v.blogs) {
		http.NotFound(w, r)
		return
	}
	version := fmt.Sprintf(`"%d"`, len(v.blogs[n]))
	if r.Header.Get("If-None-Match") == version {
		v.same++
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("ETag", version)
	fmt.Fprint(w, `<rss version="2.0"><channel><title>A blog</title>`)
	for _, id := range v.blogs[n] {
		fmt.Fprintf(w, "<item><guid>%s</guid><title>About %[1]s</title></item>", id)
	}
	fmt.Fprint(w, "</channel></rss>")
}

func (v *town) urls() (all []string) {
	for i := range v.blogs {
		all = append(all, fmt.Sprintf("%s/%d", v.URL, i))
	}
	return all
}

// articles counts the articles of a ledger by their keys.
func articles(t *testing.T, address string) map[string]int {
	t.Helper()
	count := map[string]int{}
	for line := range strings.Lines(ledgerd(t, address, "ls", "--all", "--kind", "article", "-o", "jsonl").End(t, 0)) {
		var row struct{ Key string }
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if row.Key != "" {
			count[row.Key]++
		}
	}
	return count
}

func databases(t *testing.T, test func(t *testing.T, address string)) {
	t.Parallel()
	exampletest.Databases(t, func(t *testing.T, address string) {
		t.Parallel()
		test(t, address)
	})
}

// TestOnce: feeds grow, two read at a time, and one is killed at any moment. In the end every entry is an
// article, once, and editors who take them at the same time get each of them once.
func TestOnce(t *testing.T) {
	databases(t, func(t *testing.T, address string) {
		v := newTown(t, 6)
		ledgerd(t, address, "db", "migrate").End(t, 0)
		killed := rand.IntN(3)
		for round := range 3 {
			v.grow(4)
			ledgerd(t, address, append([]string{"add", "feed", "--again"}, v.urls()...)...).End(t, 0)
			if round == killed {
				victim := ledgerd(t, address, "work", "--drain", "--kind", "feed", "--lease", "5s")
				for range rand.IntN(6) + 1 {
					select {
					case <-v.touched:
					case <-time.After(exampletest.Patience):
						t.Fatal("no feed was read")
					}
				}
				victim.Kill()
			}
			others := []*exampletest.Program{ledgerd(t, address, "work", "--drain", "--kind", "feed", "--wait", "1m"),
				ledgerd(t, address, "work", "--drain", "--kind", "feed", "--wait", "1m")}
			for _, p := range others {
				p.End(t, 0)
			}
		}
		// Nothing new: all who read feeds know what was read before, whoever it was.
		ledgerd(t, address, append([]string{"add", "feed", "--again"}, v.urls()...)...).End(t, 0)
		ledgerd(t, address, "work", "--drain", "--kind", "feed").End(t, 0)
		if v.same < len(v.blogs) {
			t.Errorf("work: only %d times was a feed that is the same not sent again", v.same)
		}
		v.same = 0
		ledgerd(t, address, append([]string{"run", "feed", "--again"}, v.urls()...)...).End(t, 0)
		want := map[string]int{}
		for _, entries := range v.blogs {
			for _, id := range entries {
				want[id] = 1
			}
		}
		if diff := cmp.Diff(want, articles(t, address)); diff != "" {
			t.Errorf("articles (-want +got):\n%s", diff)
		}
		if v.same < len(v.blogs) {
			t.Errorf("run: only %d times was a feed that is the same not sent again", v.same)
		}
		var editors []*exampletest.Program
		for _, name := range []string{"ann", "bob", "carl"} {
			editors = append(editors, ledgerd(t, address, "claim", "article", "--agent", name, "--limit",
				fmt.Sprint(len(want)/2), "-o", "json"))
		}
		taken := map[string]int{}
		for _, e := range editors {
			var leases []struct{ Key string }
			if err := json.Unmarshal([]byte(e.End(t, 0)), &leases); err != nil {
				t.Fatal(err)
			}
			for _, l := range leases {
				taken[l.Key]++
			}
		}
		if diff := cmp.Diff(want, taken); diff != "" {
			t.Errorf("taken (-want +got):\n%s", diff)
		}
		ledgerd(t, address, "db", "verify").End(t, 0)
	})
}

// TestServe: a daemon reads a feed that recurs, and an editor takes what is in it.
func TestServe(t *testing.T) {
	databases(t, func(t *testing.T, address string) {
		v := newTown(t, 2)
		v.grow(3)
		ledgerd(t, address, "db", "migrate").End(t, 0)
		ledgerd(t, address, "kind", "set", "article", "--input", "line").End(t, 0) // so that it can be asked for at once
		config := filepath.Join(t.TempDir(), "ledgerd.toml")
		text := "listen = \"\"\n[kinds.feed]\nevery = \"1h\"\n[kinds.feed.with]\nallow_private = true\n"
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		daemon := ledgerd(t, address, "serve", "--config", config)
		ledgerd(t, address, append([]string{"add", "feed", "--config", config}, v.urls()...)...).End(t, 0)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		want, deadline := len(v.blogs[0])+len(v.blogs[1]), time.After(exampletest.Patience)
		for got := 0; got < want; got = len(articles(t, address)) {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("%d articles, want %d\n%s", got, want, daemon.Stderr.String())
			}
		}
		if taken := ledgerd(t, address, "claim", "article", "--agent", "ann", "--limit", "100", "-o", "csv", "--columns",
			"key").End(t, 0); strings.Count(taken, "\n") != 1+want {
			t.Errorf("ann takes %q, want %d", taken, want)
		}
		if said := ledgerd(t, address, "ls", "--kind", "feed", "-o", "csv", "--columns", "state").End(t,
			0); said != "state\nwaiting\nwaiting\n" {
			t.Errorf("feeds that recur: %q", said)
		}
		if err := daemon.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		daemon.End(t, 0)
	})
}

// TestReadme runs the sessions of README.md as they stand there and compares what is printed.
func TestReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	if err := os.CopyFS(filepath.Join(home, "site"), os.DirFS("site")); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("publish.sh")
	if err == nil {
		err = os.WriteFile(filepath.Join(home, "publish.sh"), script, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	blogs := exampletest.Start(t, exec.Command(programs.Path(t, "blogs"), "-port", "0", filepath.Join(home, "site")))
	line, _ := blogs.Next(t)
	_, port, found := strings.Cut(line, "127.0.0.1:")
	if !found {
		t.Fatalf("blogs printed %q", line)
	}
	sessions := regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(sessions) != 2 {
		t.Fatalf("the README has %d sessions", len(sessions))
	}
	for _, session := range sessions {
		var got strings.Builder
		for line := range strings.Lines(session[1]) {
			command, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				continue
			}
			sh := exec.Command("sh", "-c", strings.ReplaceAll(command, ":8026", ":"+port))
			sh.Dir = home
			sh.Env = []string{"HOME=" + home, "PATH=" + programs.Dir(t) + ":" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(),
				"LEDGERD_DB=sqlite:" + filepath.Join(home, "ledger.db")}
			out, _ := sh.CombinedOutput() // the output has the exit code
			got.WriteString(line + strings.ReplaceAll(string(out), ":"+port, ":8026"))
		}
		if diff := cmp.Diff(timeless(session[1]), timeless(got.String())); diff != "" {
			t.Errorf("-README +printed\n%s", diff)
		}
	}
	var asked []string
	if err := blogs.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for line, more := blogs.Next(t); more; line, more = blogs.Next(t) {
		asked = append(asked, line)
	}
	slices.Sort(asked[3:]) // in the second round the order is open
	want := []string{"GET /bakery.xml 200", "GET /old-tram.json 301", "GET /tram.json 200", "GET /bakery.xml 200",
		"GET /tram.json 304"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// timeless is text in which every duration is the same.
func timeless(s string) string {
	return regexp.MustCompile(`[0-9]+\.[0-9] s\b`).ReplaceAllString(s, "0.1 s")
}
