package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestLiveOtherSettings: a live process that works a kind with other settings is in the way, and is named with
// both values; what it can be stopped by is said, and no other name for the kind. Once it was killed the new
// settings take over, for recurring items, too.
func TestLiveOtherSettings(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine) {
		s := m.site(base)
		s.run(exitOK, "add", "effect", "recurs", "--every", "day", "--due", "1h")
		p := s.daemon()
		elsewhere := filepath.Join(s.dir, "elsewhere")
		args := []string{"run", "effect", "x", "--with", "path=" + elsewhere}
		refused := s.start(args...)
		if code := s.exit(refused); code != exitUsage {
			t.Fatalf("exit %d\n%s", code, refused.stderr.String())
		}
		said := refused.stderr.String()
		for _, want := range []string{`kind "effect" is worked with other settings by `, "pid " + strconv.Itoa(p.Process.Pid), " since ",
			`path is "` + filepath.Join(s.dir, "effects") + `" there and "` + elsewhere + `" here`, "kill " + strconv.Itoa(p.Process.Pid), "done once more"} {
			if !strings.Contains(said, want) {
				t.Errorf("%q is not said\n%s", want, said)
			}
		}
		if shown := s.run(exitOK, "kind", "show", "effect"); !strings.Contains(shown, "pid "+strconv.Itoa(p.Process.Pid)) || !strings.Contains(shown, "effects") {
			t.Errorf("kind show\n%s", shown)
		}
		s.signal(p, syscall.SIGKILL)
		s.exit(p)
		s.until("the new settings take over", func() bool { return s.exit(s.start(args...)) == exitOK })
		if got := lines(t, elsewhere, "done"); got["x"] != 1 {
			t.Errorf("effects %v", got)
		}
		if shown := s.run(exitOK, "kind", "show", "effect", "-o", "json"); !strings.Contains(shown, `"path": "`+elsewhere+`"`) {
			t.Errorf("kind show\n%s", shown)
		}
	})
}

// TestReloadSettings: SIGHUP has the plugins work with the settings that the config has by then, and so
// has a restart, whatever is left.
func TestReloadSettings(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine) {
		s := m.site(base)
		s.run(exitOK, "add", "effect", "recurs", "--every", "day", "--due", "1h")
		p := s.daemon()
		s.run(exitOK, "add", "effect", "before")
		s.until("it is done", func() bool { return s.done("effect") == 1 })
		s.write("ledgerd.toml", strings.Replace(base, "effects", "reloaded", 1))
		s.signal(p, syscall.SIGHUP)
		s.until("the new settings are used", func() bool { return strings.Contains(p.stderr.String(), "settings that the config has now") })
		s.run(exitOK, "add", "effect", "after")
		s.until("it is done", func() bool { return s.done("effect") == 2 })
		if got := lines(t, filepath.Join(s.dir, "reloaded"), "done"); got["after"] != 1 || len(got) != 1 {
			t.Errorf("effects %v", got)
		}
		s.signal(p, syscall.SIGTERM)
		if code := s.exit(p); code != exitOK {
			t.Errorf("exit %d\n%s", code, p.stderr.String())
		}
		s.write("ledgerd.toml", strings.Replace(base, "effects", "restarted", 1))
		s.run(exitOK, "add", "effect", "last")
		p = s.daemon()
		s.until("it is done", func() bool { return lines(t, filepath.Join(s.dir, "restarted"), "done")["last"] == 1 })
		s.signal(p, syscall.SIGTERM)
		s.exit(p)
	})
}
