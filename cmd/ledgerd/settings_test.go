package main

import (
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
)

// A live process that works a kind with other settings blocks the new ones, and is named with both values. The message
// has the way to stop it, and suggests no other name for the kind. After it was killed the new settings hold, also for
// recurring items.
func TestLiveOtherSettings(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		s := m.site(base)
		s.run(failure.ExitOK, "add", "effect", "recurs", "--every", "day", "--due", "1h")
		p := s.daemon()
		elsewhere := filepath.Join(s.dir, "elsewhere")
		args := []string{"run", "effect", "x", "--with", "path=" + elsewhere}
		refused := s.start(args...)
		s.ends(refused, failure.ExitUsage)
		said := refused.stderr.String()
		for _, want := range []string{`kind "effect" is worked with other settings by `, "pid " + strconv.Itoa(p.Process.Pid),
			" since ",
			`path is "` + filepath.Join(s.dir, "effects") + `" there and "` + elsewhere + `" here`, "kill " +
				strconv.Itoa(p.Process.Pid), "done once more", "another name for the kind is no way round"} {
			if !strings.Contains(said, want) {
				t.Errorf("%q is not said\n%s", want, said)
			}
		}
		if shown := s.run(failure.ExitOK, "kind", "show", "effect"); !strings.Contains(shown, "pid "+
			strconv.Itoa(p.Process.Pid)) || !strings.Contains(shown, "effects") {
			t.Errorf("kind show\n%s", shown)
		}
		s.signal(p, syscall.SIGKILL)
		s.exit(p)
		s.until("the new settings take over", func() bool { return s.exit(s.start(args...)) == failure.ExitOK })
		if got := lines(t, elsewhere, "done"); got["x"] != 1 {
			t.Errorf("effects %v", got)
		}
		if shown := s.run(failure.ExitOK, "kind", "show", "effect", "-o", "json"); !strings.Contains(shown, `"path": "`+
			elsewhere+`"`) {
			t.Errorf("kind show\n%s", shown)
		}
	})
}

// Two daemons that both get the same new settings give up the old ones. After that both work with the new ones, one of
// them first.
func TestReloadTogether(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		s := m.site(base)
		s.run(failure.ExitOK, "add", "effect", "recurs", "--every", "day", "--due", "1h")
		a, b := s.daemon(), s.daemon()
		s.write("ledgerd.toml", strings.Replace(base, "effects", "reloaded", 1))
		s.signal(a, syscall.SIGHUP)
		s.signal(b, syscall.SIGHUP)
		works := func(p *started) func() bool {
			return func() bool {
				code, answer := s.ready(p)
				return strings.Contains(p.stderr.String(), "was read anew") && code == http.StatusOK && answer.Kinds["effect"] == ""
			}
		}
		s.until("one works it", works(a))
		s.until("the other works it", works(b))
		s.until("both with the new settings", func() bool {
			return strings.Count(s.run(failure.ExitOK, "kind", "show", "effect", "-o", "json"), `"path": "`+filepath.Join(s.dir,
				"reloaded")+`"`) == 3
		})
		s.run(failure.ExitOK, "add", "effect", "after")
		s.until("it is done", func() bool { return s.done("effect") == 1 })
		if got := lines(t, filepath.Join(s.dir, "reloaded"), "done"); got["after"] != 1 {
			t.Errorf("effects %v", got)
		}
		for _, p := range []*started{a, b} {
			s.stop(p, syscall.SIGTERM, failure.ExitOK)
		}
	})
}

// A daemon that gets other settings than another daemon does not work the kind until that daemon has them too. It ends
// the items that it holds, and reports everywhere that it waits.
func TestReloadWaits(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		s := m.site(base)
		a := s.daemon()
		till := filepath.Join(s.dir, "go")
		s.run(failure.ExitOK, "add", "effect", "held", "--set", "till="+till)
		s.until("it is begun", func() bool { return len(lines(t, filepath.Join(s.dir, "effects"), "start")) == 1 })
		b := s.daemon()
		s.write("ledgerd.toml", strings.Replace(base, "effects", "reloaded", 1))
		s.signal(a, syscall.SIGHUP)
		s.until("it is not ready", func() bool {
			code, answer := s.ready(a)
			return code == http.StatusServiceUnavailable && answer.Kinds["effect"] == "other_settings"
		})
		s.write("go", "")
		s.until("it ends what it holds", func() bool { return s.done("effect") == 1 })
		waits := "pid " + strconv.Itoa(a.Process.Pid)
		s.until("kind show reports that it waits", func() bool {
			_, after, found := strings.Cut(s.run(failure.ExitOK, "kind", "show", "effect"),
				"to be worked with other settings by these")
			return found && strings.Contains(after, waits) && strings.Contains(after, `effects" → "`)
		})
		doctor := s.start("doctor") // it may find a fault in the database of a test
		s.exit(doctor)
		if text := doctor.stdout.String(); !strings.Contains(text, "it is to work it with other settings than ") ||
			!strings.Contains(text, "effects") {
			t.Errorf("doctor printed\n%s", text)
		}
		s.run(failure.ExitOK, "add", "effect", "meanwhile", "--set", "till=")
		s.until("the other one works it", func() bool { return s.done("effect") == 2 })
		if got := lines(t, filepath.Join(s.dir, "effects"), "done"); got["meanwhile"] != 1 || got["held"] != 1 {
			t.Errorf("effects %v", got)
		}
		s.signal(b, syscall.SIGHUP)
		for _, p := range []*started{a, b} {
			s.until("it is ready", func() bool {
				code, answer := s.ready(p)
				return strings.Contains(p.stderr.String(), "was read anew") && code == http.StatusOK && answer.Kinds["effect"] == ""
			})
		}
		s.until("it reports so", func() bool {
			return strings.Contains(a.stderr.String(), `"msg":"kind is worked here again","kind":"effect"`)
		})
		s.run(failure.ExitOK, "add", "effect", "after", "--set", "till=")
		s.until("it is done", func() bool { return lines(t, filepath.Join(s.dir, "reloaded"), "done")["after"] == 1 })
		for _, p := range []*started{a, b} {
			s.signal(p, syscall.SIGTERM)
			s.exit(p)
		}
	})
}

// SIGHUP writes the values of the config that have changed since it was last read, and keeps what was set meanwhile.
// The replaced values are logged, old and new, with the daemon's name.
func TestReloadPolicy(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		s := m.site(policyConfig("2", "1s"))
		p := s.daemon()
		has := func(want string) func() bool {
			return func() bool { return strings.Contains(s.run(failure.ExitOK, "kind", "ls", "-o", "json"), want) }
		}
		s.until("the policy is written", has(`"max_failures":2`))
		s.run(failure.ExitOK, "kind", "set", "effect", "--max-failures", "9", "--max-lost", "8")
		doctor := s.start("doctor", "--config", s.config)
		s.exit(doctor)
		if text := doctor.stdout.String(); !strings.Contains(text, "max_failures of kind effect is 9 in the ledger, and 2 "+
			"in the config ("+s.config+":") ||
			!strings.Contains(text, " kind set effect --max-failures=2") {
			t.Errorf("doctor printed\n%s", text)
		}
		s.write("ledgerd.toml", policyConfig("2", "3s"))
		s.signal(p, syscall.SIGHUP)
		s.until("the changed value of the file is written", has(`"timeout_s":3`))
		if !has(`"max_failures":9`)() {
			t.Errorf("SIGHUP has set what the file has as before\n%s", s.run(failure.ExitOK, "kind", "ls", "-o", "json"))
		}
		s.write("ledgerd.toml", policyConfig("4", "3s"))
		s.signal(p, syscall.SIGHUP)
		s.until("the changed value of the file is written", has(`"max_failures":4`))
		want := "max_failures: 9 → 4 (" + s.config + ":"
		s.until("it is said", func() bool { return strings.Contains(p.stderr.String(), want) })
		if text := s.run(failure.ExitOK, "journal", "-o", "json"); !strings.Contains(text, `"desk"`) ||
			!strings.Contains(text, "max_failures: 9 → 4") {
			t.Errorf("journal\n%s", text)
		}
		s.run(failure.ExitOK, "kind", "set", "effect", "--max-failures", "9")
		s.signal(p, syscall.SIGTERM)
		s.exit(p)
		p = s.daemon()
		s.until("a start writes all", has(`"max_failures":4`))
		s.signal(p, syscall.SIGTERM)
		s.exit(p)
	})
}

func policyConfig(maxFailures, timeout string) string {
	return "agent = \"desk\"\n" + base + "[kinds.effect]\nmax_failures = " + maxFailures + "\ntimeout = \"" + timeout +
		"\"\n"
}
