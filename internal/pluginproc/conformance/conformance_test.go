//go:build unix

package conformance_test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginproc/conformance"
	"github.com/ledgerd/ledgerd/sdk"
)

// The test binary is a plugin: the good one, or the one with the defect that its second
// argument names.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "plugin" {
		if os.Args[2] == "anything" {
			sdk.Main(anything())
		}
		bePlugin(os.Args[2])
		return
	}
	goleak.VerifyTestMain(m)
}

func target(t *testing.T, defect string) conformance.Target {
	t.Helper()
	path, err := os.Executable()
	must.OK(t, err)
	name := "greeter"
	if defect == "anything" {
		name = defect
	}
	return conformance.Target{Name: name, Spec: pluginproc.Spec{Path: path, Args: []string{"plugin", defect}}}
}

// A plugin that knows nothing of go-plugin passes, and so does one that takes any payload and has nothing to do for
// what is no payload at all. One by package sdk is in sdk/sdktest.
func TestGoodPlugins(t *testing.T) {
	for _, name := range []string{"none", "anything"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to, end := target(t, name).Share()
			defer end()
			for _, c := range conformance.Checks(to) {
				err := c.Run(t.Context(), to)
				if err != nil && !(name == "anything" && c.Name == "secrets" && errors.Is(err, conformance.ErrNotChecked)) {
					t.Errorf("%s: %v", c.Name, err)
				}
			}
		})
	}
}

// planted are the defects: the check that finds each, and its message. impatient is for those that
// are found by waiting in vain.
var planted = []struct {
	check, defect, want string
	impatient           bool
}{
	{"by hand", "by hand", "exits with 0, not 1", false},
	{"by hand", "exits with 0", "exits with 0, not 1", false},
	{"by hand", "silent", "prints nothing", false},
	{"handshake", "elsewhere", "not in PLUGIN_UNIX_SOCKET_DIR", false},
	{"handshake", "chatty", `it writes "good bye\n"`, false},
	{"handshake", "newest", "it chooses 99", false},
	{"tls", "trusting", "is let in", false},
	{"plain", "only TLS", "no certificate", false},
	{"describe", "moody", "second Describe", false},
	{"describe", "unique", "another process", false},
	{"describe", "name", `name "Greeter"`, false},
	{"describe", "version", `version "new"`, false},
	{"describe", "idle", "concurrency is 0", false},
	{"describe", "kind", `"No Kind"`, false},
	{"name", "renamed", `calls itself "somebody-else"`, false},
	{"size", "novel", "documentation has", false},
	{"size", "wide", "1001 fields", false},
	{"schemas", "schema", "output: schema", false},
	{"schemas", "input", `input "nome"`, false},
	{"schemas", "match", `match "["`, false},
	{"schemas", "secret unknown", `secret "greeting"`, false},
	{"schemas", "secret unsaid", `"token" is writeOnly`, false},
	{"described examples", "example long", "example 2: payload: name: ", false},
	{"described examples", "example payload", "example 3: payload: name: ", false},
	{"described examples", "example misfit", "example 1: output: ", false},
	{"config", "no health", "CheckHealth", false},
	{"refusals", "credulous", "is not refused", false},
	{"refusals", "nameless", "is not refused with the name", false},
	{"refusals", "rude", "the call Configure", false},
	{"validate only", "keeps", "configured already", false},
	{"secrets", "gossip", "on stderr", false},
	{"secrets", "tattler", "in a Problem", false},
	{"examples", "example output", `gives "hello ada", not "bye ada"`, false},
	{"examples", "crash", "last words", false},
	{"results", "shouts", `code "All Is Well"`, false},
	{"results", "smuggles", `"contraband"`, false},
	{"results", "wrong output", `output {"not":"text"}`, false},
	{"results", "ghost", "attempt 1", false},
	{"payload", "retries", "it is FAILED, code payload", false},
	{"payload", "other code", "code bad_payload", false},
	{"large", "small", "received message larger than max", false},
	{"unknown fields", "strict", "unknown field", false},
	{"many", "no lock", "lock_id", false},
	{"many", "twice", "has 2 results", false},
	{"many", "attempts", "attempt 2", false},
	{"many", "mute", "have no result", true},
	{"many", "miser", "no credits", true},
	{"many", "spent", "no credits", true},
	{"again", "not twice", "is FAILED, code exists", false},
	{"cancel", "talkative", "item 1 has 2 results", false},
	{"cancel in work", "deaf", "have no result", true},
	{"cancel in work", "blames", "is FAILED: interrupted", false},
	{"timeout", "slow to time out", "have no result", true},
	{"drain", "stays", "signal 15", false},
	{"drain", "stubborn", "signal 15", false},
	{"drain in work", "drops", "has 0 results", false},
	{"drain in work", "miser", "no credits", true},
	{"orphan", "orphan", "lives on", true},
	{"steady", "leaks files", "more files open", false},
	{"steady", "leaks memory", "MiB more memory", false},
}

// Each defect is found by the check that is there for it.
func TestDefects(t *testing.T) {
	for _, p := range planted {
		if !p.impatient {
			t.Run(p.check+"/"+p.defect, func(t *testing.T) {
				t.Parallel()
				mustFind(t, target(t, p.defect), p.check, p.want)
			})
		}
	}
}

// So are those that never answer, for which the checks wait in vain, here less long than elsewhere.
func TestSilentDefects(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for _, p := range planted {
		if p.impatient {
			wg.Go(func() {
				to := target(t, p.defect)
				to.Slack = 0.2
				if p.check == "many" || p.defect == "miser" {
					to.Limit = 5 * time.Second
				}
				if f := mustFind(t, to, p.check, p.want); f != nil && f.TimedOut != (to.Limit > 0) {
					t.Errorf("%s: timed out: %t", p.defect, f.TimedOut)
				}
			})
		}
	}
	wg.Wait()
}

// mustFind makes a check that must fail with its message, and nil if it does not.
func mustFind(t *testing.T, to conformance.Target, check, want string) *conformance.Failure {
	t.Helper()
	err := find(t, to, check).Run(t.Context(), to)
	f, ok := errors.AsType[*conformance.Failure](err)
	if !ok || !strings.Contains(f.Happened, want) {
		t.Errorf("%s: %v, want %s", check, err, want)
		return nil
	}
	if f.Expected == "" || f.Do == "" {
		t.Errorf("%s: it does not say what was expected and what to do: %+v", check, f)
	}
	return f
}

func find(t *testing.T, to conformance.Target, name string) conformance.Check {
	t.Helper()
	for _, c := range conformance.Checks(to) {
		if c.Name == name {
			return c
		}
	}
	t.Errorf("there is no check %q", name)
	return conformance.Check{}
}

// And by no other check of its group: a plugin with one defect fails one check, also where checks share processes.
// Every check is proved by such a one.
func TestDefectsFailOneCheckOnly(t *testing.T) {
	proved := map[string]bool{}
	for _, p := range planted {
		if proved[p.check] { // the first one of a check is as narrow as can be
			continue
		}
		proved[p.check] = true
		t.Run(p.check+"/"+p.defect, func(t *testing.T) {
			t.Parallel()
			to := target(t, p.defect)
			c := find(t, to, p.check)
			to.Quick = !c.Timed // to save time
			to.Spec.NoMTLS = c.Group != conformance.GroupStart
			to, end := to.Share()
			defer end()
			for _, other := range conformance.Checks(to) {
				if other.Group != c.Group || other.Name == p.check && p.impatient {
					continue // see TestDefects and TestSilentDefects
				}
				err := other.Run(t.Context(), to)
				if found := err != nil && !errors.Is(err, conformance.ErrNotChecked); found != (other.Name == p.check) {
					t.Errorf("%s: %v", other.Name, err)
				}
			}
		})
	}
	for _, c := range conformance.Checks(target(t, "none")) {
		if !proved[c.Name] {
			t.Errorf("no defect proves the check %q", c.Name)
		}
	}
}
