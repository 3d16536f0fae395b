//go:build unix

package pluginproc_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
)

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		must.OK(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	open := filepath.Join(dir, "open")
	must.OK(t, os.Mkdir(open, 0o755))
	if err := os.Chmod(open, 0o777); err != nil { // Mkdir's mode is subject to umask
		t.Fatal(err)
	}
	script := "#!/bin/sh\nexit 0\n"
	inOpen := write("open/plugin", script, 0o755)
	below := filepath.Join(open, "below")
	must.OK(t, os.Mkdir(below, 0o755))
	belowOpen := write("open/below/plugin", script, 0o755)
	openFile := write("openfile", script, 0o755)
	must.OK(t, os.Chmod(openFile, 0o757))

	write("plain-name", script, 0o755) // what lies in the current folder is not started
	t.Chdir(dir)
	sticky := filepath.Join(dir, "sticky")
	must.OK(t, os.Mkdir(sticky, 0o755))
	must.OK(t, os.Chmod(sticky, 0o777|os.ModeSticky))
	tests := []struct {
		name string
		spec pluginproc.Spec // Path "" is the test binary
		act  string
		step pluginproc.Step
		is   error
		want []string // in the message
	}{
		{"missing", pluginproc.Spec{Path: filepath.Join(dir, "nothing")}, "", pluginproc.StepCheck, os.ErrNotExist,
			[]string{"not there"}},
		{"a name that is not in PATH", pluginproc.Spec{Path: "plain-name"}, "", pluginproc.StepCheck, exec.ErrNotFound,
			[]string{"not in PATH"}},
		{"directory", pluginproc.Spec{Path: dir}, "", pluginproc.StepCheck, nil, []string{"not executable"}},
		{"not executable", pluginproc.Spec{Path: write("plain", script, 0o644)}, "", pluginproc.StepCheck, nil,
			[]string{"not executable", "chmod +x"}},
		{"wrong machine", pluginproc.Spec{Path: write("other", "\x7fELF nonsense", 0o755)}, "", pluginproc.StepStart, nil,
			[]string{"not a program for this machine"}},
		{"no interpreter", pluginproc.Spec{Path: write("script", "#!/no/such/shell\n", 0o755)}, "", pluginproc.StepStart, nil,
			[]string{"interpreter"}},
		{"checksum", pluginproc.Spec{SHA256: strings.Repeat("0", 64)}, "noop", pluginproc.StepCheck, pluginproc.ErrChecksum,
			[]string{"sha256 is", "not 0000"}},
		{"open directory", pluginproc.Spec{Path: inOpen}, "", pluginproc.StepCheck, pluginproc.ErrWritable,
			[]string{open + " is writable by others", "chmod o-w " + open}},
		{"below an open directory", pluginproc.Spec{Path: belowOpen}, "", pluginproc.StepCheck, pluginproc.ErrWritable,
			[]string{open + " is writable by others"}},
		{"open file", pluginproc.Spec{Path: openFile}, "", pluginproc.StepCheck, pluginproc.ErrWritable,
			[]string{openFile + " is writable by others"}},
		{"ours in a sticky directory", pluginproc.Spec{Path: write("sticky/plugin", script, 0o755)}, "",
			pluginproc.StepHandshake, nil, []string{"exited with 0 before the handshake"}},
		{"junk", pluginproc.Spec{}, "junk", pluginproc.StepHandshake, nil, []string{"wrote to stdout before the handshake",
			`"loading model…"`}},
		{"endless line", pluginproc.Spec{}, "endless", pluginproc.StepHandshake, nil,
			[]string{"wrote to stdout before the handshake", "xxx…"}},
		{"other protocol", pluginproc.Spec{}, "protocol", pluginproc.StepHandshake, nil, []string{"speaks only protocol 2"}},
		{"exits", pluginproc.Spec{}, "dies", pluginproc.StepHandshake, nil, []string{"exited with 7",
			"stderr: no such model"}},
		{"exits with a cause", pluginproc.Spec{Path: write("short", "#!/bin/sh\nprintf 'Error: no module\\n}\\n' >&2\nexit 1\n",
			0o755)}, "", pluginproc.StepHandshake, nil, []string{"before the handshake: Error: no module\n  stderr: }"}},
		{"exits with a stack", pluginproc.Spec{}, "dies-telling", pluginproc.StepHandshake, nil,
			[]string{"exited with 7 before the handshake: panic: no such tag\n  stderr: frame 9"}},
		{"script without the SDK", pluginproc.Spec{Path: write("talks", "#!/bin/sh\necho ready\n", 0o755)}, "",
			pluginproc.StepHandshake, nil, []string{"before the handshake", "is run by exec", "command=" + dir + "/talks"}},
		{"exits after the handshake", pluginproc.Spec{}, "dies-after-handshake", pluginproc.StepConnect, nil,
			[]string{"exited with 8", "too late"}},
		{"without TLS", pluginproc.Spec{}, "plain", pluginproc.StepConnect, nil, []string{"it answers without TLS",
			"mtls = false"}},
		{"prints nothing", pluginproc.Spec{StartTimeout: 500 * time.Millisecond}, "silent", pluginproc.StepHandshake, nil,
			[]string{"did not answer within 500ms"}},
		{"socket path", pluginproc.Spec{SocketDir: longDir(t)}, "noop", pluginproc.StepStart, nil,
			[]string{"socket would be too long"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			spec := test.spec
			if spec.Path == "" {
				spec.Path = self(t, "").Path
			}
			if spec.SocketDir == "" {
				spec.SocketDir = shortDir(t)
			}
			spec.Args = []string{test.act}
			p, err := pluginproc.Start(t.Context(), spec)
			if err == nil {
				p.Kill()
				t.Fatal("it started")
			}
			var se *pluginproc.StartError
			if !errors.As(err, &se) {
				t.Fatalf("%T %v", err, err)
			}
			if se.Step != test.step || se.Path != spec.Path {
				t.Errorf("step %s path %s, want %s %s: %v", se.Step, se.Path, test.step, spec.Path, err)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%v is not %v", err, test.is)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("message lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

func longDir(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 20))
	must.OK(t, os.Mkdir(dir, 0o700))
	return dir
}

func TestStartGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	spec := self(t, "silent")
	spec.OnLog = func(string, string) {}
	time.AfterFunc(100*time.Millisecond, func() { cancel(enough) })
	_, err := pluginproc.Start(ctx, spec)
	if !errors.Is(err, enough) {
		t.Error(err)
	}
}

func TestChecksum(t *testing.T) {
	spec := self(t, "noop")
	f, err := os.Open(spec.Path)
	must.OK(t, err)
	defer f.Close()
	h := sha256.New()
	must.Do(t)(io.Copy(h, f))
	spec.SHA256 = fmt.Sprintf("%X", h.Sum(nil))
	p, err := pluginproc.Start(t.Context(), spec)
	must.OK(t, err)
	p.Kill()
}

func TestEnvironmentIsNotInherited(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://app:secret@db1/work")
	t.Setenv("LEDGERD_DB", "postgres://app:secret@db1/work")
	t.Setenv("HTTPS_PROXY", "http://proxy")
	t.Setenv("TZ", "Europe/Vienna")
	spec := self(t, "actor")
	spec.Env = []string{"MODEL=large"}
	h := start(t, spec, `{}`)
	h.send(1, "environ")
	environ := string(h.result(1).Output)
	for _, no := range []string{"secret", "DATABASE_URL", "LEDGERD_DB", "HTTPS_PROXY", "LEDGERD_PLUGIN", "PLUGIN_"} {
		if strings.Contains(environ, no) {
			t.Errorf("the plugin sees %s", no)
		}
	}
	for _, yes := range []string{"PATH=", "TZ=Europe/Vienna", "MODEL=large"} {
		if !strings.Contains(environ, yes) {
			t.Errorf("the plugin does not see %s", yes)
		}
	}
}

func TestWithoutTLS(t *testing.T) {
	spec := self(t, "actor")
	spec.NoMTLS = true
	h := start(t, spec, `{}`)
	h.send(1, "greet")
	if got := string(h.result(1).Output); got != `"hello"` {
		t.Error(got)
	}
}

// A host that was killed leaves its socket's directory behind; the start of the next host removes it. See
// TestSweepOnlyOurs for directories that stay.
func TestSweep(t *testing.T) {
	spec := self(t, "noop")
	must.OK(t, os.MkdirAll(filepath.Join(spec.SocketDir, "ledgerd-sock-1", "plugin-dir1"), 0o700))
	p, err := pluginproc.Start(t.Context(), spec)
	must.OK(t, err)
	p.Kill() // SocketDir must be empty at the end of the test
}
