package video

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/exampletest"
)

var programs = exampletest.Build("github.com/ledgerd/ledgerd/cmd/ledgerd")

func TestMain(m *testing.M) { os.Exit(programs.Run(m)) }

// place is a copy of the example, with a PATH and a ledger.
type place struct {
	dir string
	env []string
}

// newPlace copies the example; ffmpeg is the stand-in unless it is to be the real one.
func newPlace(t *testing.T, address string, real bool) *place {
	t.Helper()
	p := &place{dir: t.TempDir()}
	for _, name := range []string{"clips.sh", "convert.sh", "video.toml"} {
		content, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(p.dir, name), content, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	path := programs.Dir(t) + ":" + os.Getenv("PATH")
	if !real {
		standin, err := filepath.Abs("standin")
		if err != nil {
			t.Fatal(err)
		}
		path = standin + ":" + path
	}
	p.env = []string{"HOME=" + p.dir, "XDG_DATA_HOME=" + p.dir, "PATH=" + path, "TMPDIR=" + t.TempDir(), "LEDGERD_DB=" +
		address}
	return p
}

// shell is a line of shell that runs there.
func (p *place) shell(line string) *exec.Cmd {
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir, cmd.Env = p.dir, p.env
	return cmd
}

// do runs a line that must succeed, and returns what it prints.
func (p *place) do(t *testing.T, line string) string {
	t.Helper()
	out, err := p.shell(line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// configure adds lines to the config of the kind.
func (p *place) configure(t *testing.T, lines ...string) {
	t.Helper()
	file := filepath.Join(p.dir, "video.toml")
	have, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append(have, strings.Join(lines, "\n")+"\n"...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// start starts ledgerd.
func (p *place) start(t *testing.T, args ...string) *exampletest.Program {
	t.Helper()
	cmd := exec.Command(programs.Path(t, "ledgerd"), append([]string{"--config", "video.toml"}, args...)...)
	cmd.Dir, cmd.Env = p.dir, p.env
	return exampletest.Start(t, cmd)
}

// await waits until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for late := time.After(exampletest.Patience); !so(); {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("after %v still not so: %s", exampletest.Patience, what)
		}
	}
}

// processes are those that belong to the place, without zombies.
func (p *place) processes(t *testing.T) (all []string) {
	t.Helper()
	out, err := exec.Command("ps", "-eo", "pid=,stat=,args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); strings.Contains(line, p.dir) && !strings.HasPrefix(f[1], "Z") {
			all = append(all, line)
		}
	}
	return all
}

// converted counts how often ffmpeg was begun for each clip.
func converted(t *testing.T, file string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(string(text)) {
		count[filepath.Base(strings.TrimSpace(line))]++
	}
	return count
}

// toml is text as TOML has it.
func toml(s string) string { return fmt.Sprintf("%q", s) }
