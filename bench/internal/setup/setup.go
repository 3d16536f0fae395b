// Package setup prepares and describes the programs, machine and versions of a run. It checks that no commit is faster
// than the disk.
package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/bench/internal/measure"
	"github.com/ledgerd/ledgerd/bench/internal/peers"
)

// About describes what a run was made on.
type About struct {
	Commit   string            `json:"commit"`
	System   string            `json:"system"`
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	Memory   string            `json:"memory"`
	Load     string            `json:"load"`                // of the machine before the run: its load averages
	InMemory string            `json:"in_memory,omitempty"` // folder of a database that is not on a disk
	SyncMS   float64           `json:"sync_ms"`             // median of writing 4 KiB and waiting for the disk
	Versions map[string]string `json:"versions"`
	Postgres map[string]string `json:"postgres"` // its settings
}

// Programs builds, into a folder, ledgerd as it is released, the plugin that does nothing, River on SQLite, and the
// benchmarks of the bundled plugins. It must run in the folder bench/.
func Programs(ctx context.Context, dir string) error {
	for _, build := range [][]string{
		{"..", "build", "-trimpath", "-o", filepath.Join(dir, "ledgerd"), "./cmd/ledgerd"},
		{".", "build", "-trimpath", "-o", filepath.Join(dir, "ledgerd-plugin-noop"), "./noop"},
		{"riversqlite", "build", "-trimpath", "-o", filepath.Join(dir, "riversqlite"), "."},
		{"..", "test", "-c", "-o", filepath.Join(dir, "filecsv.test"), "./plugins/filecsv"},
		{"..", "test", "-c", "-o", filepath.Join(dir, "urlcheck.test"), "./plugins/urlcheck"},
	} {
		cmd := exec.CommandContext(ctx, "go", build[1:]...)
		cmd.Dir = build[0]
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(build[1:], " "), err, out)
		}
	}
	return nil
}

// durable are the settings that make commits on Postgres wait for the disk.
var durable = []string{"fsync", "full_page_writes", "synchronous_commit"}

// shown are other settings of Postgres that a report names.
var shown = []string{"wal_sync_method", "shared_buffers", "max_wal_size"}

// Look describes the machine and the server. It refuses a Postgres that does not wait for the disk.
func Look(ctx context.Context, url, dir string) (a About, err error) {
	a = About{System: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), CPU: field("/proc/cpuinfo",
		"model name"), Memory: gib(field("/proc/meminfo", "MemTotal")),
		Versions: map[string]string{"Go": strings.TrimPrefix(runtime.Version(), "go")}, Postgres: map[string]string{}}
	if out, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output(); err == nil {
		a.Commit = strings.TrimSpace(string(out))
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		a.System += ", kernel " + strings.TrimSpace(string(release))
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		a.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	build, _ := debug.ReadBuildInfo()
	for name, path := range map[string]string{"River": "github.com/riverqueue/river", "goqite": "maragu.dev/goqite",
		"backlite": "github.com/mikestefanello/backlite",
		"pgx":      "github.com/jackc/pgx/v5", "modernc.org/sqlite": "modernc.org/sqlite"} {
		i := slices.IndexFunc(build.Deps, func(m *debug.Module) bool { return m.Path == path })
		if i < 0 {
			return a, fmt.Errorf("%s is not linked in", path)
		}
		a.Versions[name] = build.Deps[i].Version
	}
	if a.SyncMS, err = syncTime(dir); err != nil {
		return a, err
	}
	if inMemory(dir) {
		a.InMemory = dir
	}
	return a, a.askPostgres(ctx, url)
}

func (a *About) askPostgres(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	a.Versions["Postgres"], _, _ = strings.Cut(conn.PgConn().ParameterStatus("server_version"), " ")
	var data string // only a superuser gets it, and it may be a folder of another machine
	if conn.QueryRow(ctx, "SELECT current_setting('data_directory')").Scan(&data) == nil && inMemory(data) {
		a.InMemory = data
	}
	for _, name := range slices.Concat(durable, shown) {
		var value string
		if err := conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return err
		}
		a.Postgres[name] = value
		if slices.Contains(durable, name) && value != "on" {
			return fmt.Errorf("this Postgres has %s = %s: its commits do not wait for the disk, so its figures say nothing; "+
				"`make bench` starts one that is in order", name, value)
		}
	}
	return nil
}

// inMemory reports whether a folder is on a file system without a disk. It knows those of Linux.
func inMemory(dir string) bool {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return false
	}
	at, kind := "", ""
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		rel, err := filepath.Rel(f[1], dir)
		if err == nil && rel != ".." && !strings.HasPrefix(rel, "../") && len(f[1]) >= len(at) {
			at, kind = f[1], f[2]
		}
	}
	return kind == "tmpfs" || kind == "ramfs"
}

// syncTime measures how long the disk takes to store 4 KiB, in milliseconds.
func syncTime(dir string) (ms float64, err error) {
	f, err := os.CreateTemp(dir, "sync")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	block := bytes.Repeat([]byte{1}, 4096)
	var took []float64
	for range 100 {
		began := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began).Seconds()*1000)
	}
	return measure.Median(took), nil
}

// gib converts kB of /proc/meminfo.
func gib(text string) string {
	var kib float64
	if _, err := fmt.Sscanf(text, "%f kB", &kib); err != nil {
		return text
	}
	return fmt.Sprintf("%.0f GiB", kib/(1<<20))
}

// field returns the first value with that name in one of Linux's files of names and values; "" on other systems.
func field(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Graphile installs graphile-worker's program into a folder, in the versions of its lock file, and notes its version
// and that of Node.js. It must run in the folder bench/.
func Graphile(ctx context.Context, programs string, a *About) error {
	node, err := nodeVersion(ctx)
	if err != nil {
		return fmt.Errorf("%s, a peer on Postgres, needs Node.js %d or newer and npm: %w; install them (https://nodejs.org), "+
			"or leave its scenarios out with -only", peers.GraphileWorker, oldestNode, err)
	}
	dir := filepath.Join(programs, "graphile")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"main.js", "package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join("graphile", name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--prefer-offline", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci, which installs %s from npm's registry or npm's cache: %w\n%s", peers.GraphileWorker, err,
			out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "node_modules", peers.GraphileWorker, "package.json"))
	if err != nil {
		return err
	}
	var installed struct{ Version string }
	if err := json.Unmarshal(text, &installed); err != nil {
		return err
	}
	a.Versions["Node.js"], a.Versions[peers.GraphileWorker] = node, installed.Version
	return nil
}

// nodeVersion returns the version of Node.js. An old version or a missing npm is an error.
func nodeVersion(ctx context.Context) (string, error) {
	versions := map[string]string{}
	for _, program := range []string{"node", "npm"} {
		out, err := exec.CommandContext(ctx, program, "--version").Output()
		if err != nil {
			return "", fmt.Errorf("`%s --version` failed: %w", program, err)
		}
		versions[program] = strings.TrimPrefix(strings.TrimSpace(string(out)), "v")
		major := 0
		if _, err := fmt.Sscanf(versions["node"], "%d.", &major); err != nil || major < oldestNode {
			return "", fmt.Errorf("`node` is %s", versions["node"])
		}
	}
	return versions["node"], nil
}

// oldestNode is the oldest major version of Node.js with which the program was tried. The package of
// graphile-worker asks for 22.18; npm only warns of an older one.
const oldestNode = 20

// Riversqlite reads the versions from that program, and refuses it if its SQLite differs from that of the other
// programs.
func Riversqlite(ctx context.Context, programs string, a *About) error {
	r, err := peers.RunRiverSQLite(ctx, programs, os.TempDir(), 0, 0)
	if err != nil {
		return err
	}
	if r.Driver != a.Versions["modernc.org/sqlite"] {
		return fmt.Errorf("riversqlite has modernc.org/sqlite %s, the others %s: change its go.mod", r.Driver,
			a.Versions["modernc.org/sqlite"])
	}
	a.Versions["River on SQLite"] = r.River
	return nil
}
