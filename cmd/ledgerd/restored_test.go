package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// claimed claims one item of a kind for a person and returns its token.
func (m *machine) claimed(kind string) string {
	m.t.Helper()
	var rows []struct{ Token string }
	must.OK(m.t, json.Unmarshal([]byte(m.run(failure.ExitOK, "claim", kind, "--agent", "ann", "-o", "json")), &rows))
	if len(rows) != 1 {
		m.t.Fatalf("%d claims", len(rows))
	}
	return rows[0].Token
}

// db restored refuses a ledger that is worked. With --force the daemon notices it and ends. Earlier tokens are refused,
// and later ones have greater numbers.
func TestRestored(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine) {
		s := m.site("listen = \"127.0.0.1:0\"\n[kinds.effect]\n")
		m.run(failure.ExitOK, "db", "migrate")
		m.run(failure.ExitOK, "kind", "set", "people")
		m.run(failure.ExitOK, "add", "people", "a")
		old := m.claimed("people")
		daemon := s.daemon()
		m.until("it beats", func() bool { return m.run(failure.ExitOK, "agents", "-o", "jsonl") != "" })
		m.ends(m.start("db", "restored", "-y"), failure.ExitTaken, "is worked by ", "stop those programs")
		m.ends(m.start("db", "restored", "--force"), failure.ExitUsage, "-y")
		var done struct {
			Incarnation int
			Attempts    int64 `json:"attempts_above"`
			IDs         int64 `json:"ids_above"`
			Leases      int64 `json:"leases_ended"`
			Home        string
		}
		must.OK(t, json.Unmarshal([]byte(m.run(failure.ExitOK, "db", "restored", "-y", "--force", "-o", "json")), &done))
		if done.Incarnation != 2 || done.Leases != 1 || strings.HasPrefix(done.Home, "timeline ") == m.onSQLite() {
			t.Errorf("%+v", done)
		}
		m.ends(daemon, failure.ExitNoLedger, "was restored while this program had it open", "start this program again")
		m.ends(m.start("finish", old, "--agent", "ann"), failure.ExitTaken)
		token := m.claimed("people")
		if !strings.HasSuffix(token, fmt.Sprint(".", done.Attempts+1)) {
			t.Errorf("token %s, attempts above %d", token, done.Attempts)
		}
		m.run(failure.ExitOK, "finish", token, "--agent", "ann")
		m.run(failure.ExitOK, "add", "people", "b")
		if token := m.claimed("people"); len(token) < len(fmt.Sprint(done.IDs)) {
			t.Errorf("token %s, ids above %d", token, done.IDs)
		}
		m.run(failure.ExitOK, "db", "verify")
		if said := m.run(failure.ExitOK, "journal"); !strings.Contains(said, "began incarnation 2") {
			t.Errorf("%s", said)
		}
		m.moved()
	})
}

// moved makes the recorded place of the ledger wrong, on a database that records it.
func (m *machine) moved() {
	m.t.Helper()
	if m.onSQLite() {
		m.ends(m.start("db", "restored", "--nothing-lost"), failure.ExitUsage, "nothing is recorded of where")
		return
	}
	must.Do(m.t)(m.database().Exec("UPDATE ledger_meta SET v = 'timeline 7' WHERE k = 'home'"))
	if text := m.run(failure.ExitError, "doctor"); !strings.Contains(text, "and was on timeline 7") ||
		!strings.Contains(text, "ledgerd db restored --nothing-lost") {
		m.t.Error(text)
	}
	m.run(failure.ExitOK, "db", "restored", "--nothing-lost")
	if text := m.run(failure.ExitError, "doctor"); strings.Contains(text, "timeline 7") { // no sync on this server
		m.t.Error(text)
	}
}
