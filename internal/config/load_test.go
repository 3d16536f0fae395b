package config

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// write writes a config file and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledgerd.toml")
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const whole = `
db = "sqlite:work.db"
lease = "2m"
shard = "1/4"
plugin_dir = ["plugins", "/opt/p"]

[kinds.urlcheck]
concurrency = 8
timeout = "30s"
keep = "30d"
max_running_per_shard_key = 2
rate = "100/s"
paused = false
set.accept = [200, 404]
with = { allow_private = true }

[[source]]
name = "inbox"
type = "folder"
kind = "filecsv"
path = "inbox"
exclude = ["old/**"]
finished = "move"
move_to = "../done"
schedule = "10s"

[plugins.thumbs]
command = ["./bin/thumbs", "-v"]
env = ["MAGICK_HOME"]
`

func TestLoad(t *testing.T) {
	path := write(t, whole)
	dir := filepath.Dir(path)
	c, err := Load(Options{Path: path})
	must.OK(t, err)
	k, s := c.Kinds["urlcheck"], c.Sources[0]
	if c.DB != "sqlite:"+dir+"/work.db" || c.Lease != 2*time.Minute || c.Grace != 30*time.Second || c.Shard.Count != 4 ||
		c.PluginDir[0] != dir+"/plugins" {
		t.Errorf("%+v", c)
	}
	if k.Concurrency != 8 || *k.Timeout != 30*time.Second || *k.Keep != 30*24*time.Hour ||
		*k.Rate != (scheduler.Rate{Count: 100, Per: time.Second}) || *k.Paused || k.MaxFailures != nil {
		t.Errorf("%+v", k)
	}
	if s.Path != dir+"/inbox" || !s.Recursive || s.Settle != 2*time.Second || s.MoveTo != filepath.Join(dir, "../done") {
		t.Errorf("%+v", s)
	}
	if p := c.Plugins["thumbs"]; p.Command[0] != dir+"/bin/thumbs" || !p.MTLS {
		t.Errorf("%+v", p)
	}
	if o := c.Origin("kinds.urlcheck.timeout").String(); o != path+":9" {
		t.Errorf("timeout is from %s", o)
	}
}

// TestEditors: files from all editors are read, with correct places.
func TestEditors(t *testing.T) {
	for name, text := range map[string]string{
		"byte order mark":     "\ufefflease = \"2m\"\n",
		"carriage returns":    "lease = \"2m\"\r\n",
		"no line feed at end": "lease = \"2m\"",
	} {
		if c, err := Load(Options{Path: write(t, text)}); err != nil || c.Lease != 2*time.Minute {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := Load(Options{Path: write(t, "\ufeff# é\r\n\tlease = \"1s\" # é\r\n")})
	bad, ok := err.(*Error)
	if !ok || bad.Problems[0].Line != 2 || bad.Problems[0].Column != 2 {
		t.Errorf("%v", err)
	}
}

func TestForever(t *testing.T) {
	path := write(t, "[kinds.a]\nkeep = \"forever\"")
	c, err := Load(Options{Path: path})
	if err != nil || *c.Kinds["a"].Keep != ledger.KeepForever || FormatDuration(*c.Kinds["a"].Keep) != "forever" {
		t.Errorf("%v, %+v", err, c.Kinds["a"])
	}
	if _, err := Load(Options{Path: write(t, "lease = \"forever\"")}); err == nil {
		t.Error("a lease for ever")
	}
}

// TestPolicyOfLimits: each limit overrides that of the ledger, and the others stay.
func TestPolicyOfLimits(t *testing.T) {
	for text, want := range map[string]scheduler.Limits{
		"max_running = 3": {MaxRunning: 3, MaxRunningPerShardKey: 2, Rate: scheduler.Rate{Count: 5,
			Per: time.Second}, Burst: 4},
		"rate = \"0\"\nmax_running = 0": {MaxRunningPerShardKey: 2, Burst: 4},
		"rate_per_shard_key = \"30/m\"": {MaxRunning: 1, MaxRunningPerShardKey: 2, Rate: scheduler.Rate{Count: 5,
			Per: time.Second}, RatePerShardKey: scheduler.Rate{Count: 30, Per: time.Minute}, Burst: 4},
		"rate = \"7/10s\"\nburst = 9": {MaxRunning: 1, MaxRunningPerShardKey: 2, Rate: scheduler.Rate{Count: 7,
			Per: 10 * time.Second}, Burst: 9},
		"max_running_per_shard_key = 0\npaused = true": {MaxRunning: 1, Rate: scheduler.Rate{Count: 5, Per: time.Second},
			Burst: 4},
	} {
		c, err := Load(Options{Path: write(t, "[kinds.a]\n"+text)})
		if err != nil || len(c.Warnings) > 0 {
			t.Errorf("%s: %v, %v", text, err, c.Warnings)
			continue
		}
		k := ledger.Kind{Name: "a", Limits: scheduler.Limits{MaxRunning: 1, MaxRunningPerShardKey: 2,
			Rate: scheduler.Rate{Count: 5,
				Per: time.Second}, Burst: 4}}
		if c.Kinds["a"].Policy(&k); k.Limits != want {
			t.Errorf("%s: %v, want %v", text, k.Limits, want)
		}
	}
}
