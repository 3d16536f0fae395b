package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
)

// A second daemon with the agent name of a live one gets the next number after it, reports that and is found by doctor.
// So the end of one does not affect the other. One filter finds the items of both. The name of a killed daemon is free
// at once.
func TestSameAgent(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		s := m.site("agent = \"box-a\"\n" + strings.Replace(base, "[kinds.effect.with]",
			"[kinds.effect]\nconcurrency = 1\n[kinds.effect.with]", 1))
		names := func() string {
			return strings.TrimSpace(s.run(failure.ExitOK, "agents", "--columns", "agent", "-o", "csv"))
		}
		a := s.daemon()
		s.until("it works", func() bool { return names() == "agent\nbox-a" })
		b := s.daemon()
		s.until("both work", func() bool { return names() == "agent\nbox-a\nbox-a/2" })
		const warning = "another live process has the same agent name"
		if strings.Contains(a.stderr.String(), warning) || !strings.Contains(b.stderr.String(), warning) {
			t.Errorf("%s\n%s", a.stderr.String(), b.stderr.String())
		}
		doctor := s.start("doctor") // it may find a fault in the database of a test
		s.exit(doctor)
		if text := doctor.stdout.String(); strings.Count(text, "have the same agent name") != 1 {
			t.Errorf("doctor printed\n%s", text)
		}
		s.run(failure.ExitOK, "add", "effect", "one", "two", "--set", "till="+s.dir+"/go")
		s.until("one filter finds all that both hold", func() bool {
			return strings.TrimSpace(s.run(failure.ExitOK, "ls", "--where", "agent:box-a", "--count")) == "2"
		})
		s.signal(a, syscall.SIGKILL)
		s.exit(a)
		c := s.daemon()
		s.until("the name is used again", func() bool { return names() == "agent\nbox-a\nbox-a/2" })
		s.write("go", "")
		s.until("all is done", func() bool { return s.done("effect") == 2 })
		for _, p := range []*started{b, c} {
			s.signal(p, syscall.SIGTERM)
			s.exit(p)
		}
	})
}
