package video

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/exampletest"
)

// TestReadme runs the sessions of README.md as they stand there and compares what is printed.
func TestReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, "", os.Getenv("LEDGERD_TEST_FFMPEG") != "")
	p.env = append(p.env, "LEDGERD_DB=sqlite:"+filepath.Join(p.dir, "ledger.db"))
	for _, session := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(readme), -1) {
		var got strings.Builder
		for line := range strings.Lines(session[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				out, _ := p.shell(command).CombinedOutput() // the output has the exit code
				got.WriteString(line + strings.ReplaceAll(string(out), p.dir, "~"))
			}
		}
		if diff := cmp.Diff(session[1], steady(got.String())); diff != "" {
			t.Errorf("-README +printed\n%s", diff)
		}
	}
	if left := p.processes(t); len(left) > 0 {
		t.Errorf("there are still %q", left)
	}
}

// steady is text in which every duration and every size is the same.
func steady(s string) string {
	s = regexp.MustCompile(`[0-9]+\.[0-9] s\b`).ReplaceAllString(s, "0.1 s")
	return regexp.MustCompile(`"bytes":[0-9]+`).ReplaceAllString(s, `"bytes":SIZE`)
}

// ledgerd is killed with SIGKILL in the middle of two videos: nothing of it goes on, and two that are
// started afterwards finish the work and do none of it twice.
func TestKilled(t *testing.T) {
	t.Parallel()
	exampletest.Databases(t, func(t *testing.T, address string) {
		t.Parallel()
		p := newPlace(t, address, false)
		slow, notes := filepath.Join(p.dir, "slow"), filepath.Join(p.dir, "converted")
		p.configure(t, "concurrency = 2", "with.env.SLOW = "+toml(slow), "with.env.CONVERTED = "+toml(notes))
		p.do(t, "./clips.sh && rm clips/broken.avi && touch slow && ledgerd --config video.toml add video clips")
		first := p.start(t, "work", "--kind", "video", "--lease", "5s")
		await(t, "both are begun", func() bool { return len(converted(t, notes)) == 2 })
		first.Kill()
		await(t, "no process is left", func() bool { return len(p.processes(t)) == 0 })

		p.do(t, "rm slow && for i in 1 2 3 4 5 6; do cp clips/street.avi clips/$i.avi; done")
		second, third := p.start(t, "run", "video", "clips"), p.start(t, "run", "video", "clips")
		second.End(t, 0)
		third.End(t, 0)
		want := map[string]int{"street.avi": 2, "harbour.avi": 2, "1.avi": 1, "2.avi": 1, "3.avi": 1, "4.avi": 1, "5.avi": 1,
			"6.avi": 1}
		if diff := cmp.Diff(want, converted(t, notes)); diff != "" {
			t.Errorf("how often each was begun: -want +got\n%s", diff)
		}
		if got := p.do(t, "ls small"); got != "1.mp4\n2.mp4\n3.mp4\n4.mp4\n5.mp4\n6.mp4\nharbour.mp4\nstreet.mp4\n" {
			t.Errorf("in small are\n%s", got)
		}
	})
}

// A video that takes too long is ended, with all that was started for it.
func TestTimeout(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"), false)
	p.do(t, `./clips.sh && rm clips/broken.avi && touch slow && sed -i.old 's/"2h"/"1s"/' video.toml`)
	p.configure(t, "max_failures = 1", "with.env.SLOW = "+toml(filepath.Join(p.dir, "slow")))
	said := p.start(t, "run", "video", "clips")
	said.End(t, 3)
	if got := p.do(t, "ledgerd -q ls --columns state,code"); got != "STATE  CODE\ndead   timeout\ndead   timeout\n" {
		t.Errorf("%s\n%s", got, said.Stderr.String())
	}
	if left := p.processes(t); len(left) > 0 {
		t.Errorf("there are still %q", left)
	}
}

// A worker that is asked to stop hands back its running item, and leaves nothing running.
func TestStopped(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"), false)
	notes := filepath.Join(p.dir, "converted")
	p.configure(t, "with.env.SLOW = "+toml(filepath.Join(p.dir, "slow")), "with.env.CONVERTED = "+toml(notes))
	p.do(t,
		"./clips.sh && rm clips/broken.avi clips/street.avi && touch slow && ledgerd --config video.toml add video clips")
	worker := p.start(t, "work", "--kind", "video", "--grace", "0s")
	await(t, "it is begun", func() bool { return len(converted(t, notes)) == 1 })
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	worker.End(t, 143)
	if left := p.processes(t); len(left) > 0 {
		t.Errorf("there are still %q", left)
	}
	if got := p.do(t,
		"ledgerd -q ls --columns state,attempt,failures"); got != "STATE  ATTEMPT  FAILURES\nready  1        0\n" {
		t.Errorf("%s\n%s", got, worker.Stderr.String())
	}
}
