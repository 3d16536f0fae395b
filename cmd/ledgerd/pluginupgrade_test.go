package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk"
)

// stageConfig is the config of a plugin whose version 3 cannot start to work.
type stageConfig struct {
	effectConfig
	Broken bool   `json:"broken" default:"false" doc:"whether it does not open"`
	Till   string `json:"till" default:"" doc:"file that it waits for before it opens; meanwhile there is a file with .seen in its name"`
}

func (c *stageConfig) Open(ctx context.Context) error {
	if c.Till != "" {
		if err := os.WriteFile(c.Till+".seen", nil, 0o600); err != nil {
			return err
		}
		if err := (effectIn{Till: c.Till}).wait(ctx); err != nil {
			return err
		}
	}
	if c.Broken {
		return errors.New("the model of version 3 is not there")
	}
	return nil
}

// stage is a plugin with several versions; it works in batches.
func stage(version string) *sdk.Plugin {
	p := sdk.NewBatch("stage", version, func(ctx context.Context, cfg *stageConfig, b *sdk.Batch[effectIn, string]) error {
		for i, it := range b.Items {
			err := cfg.note("by " + version + "\nstart " + it.Key)
			if err == nil {
				err = it.Payload.wait(ctx)
			}
			if err == nil {
				err = cfg.note("by " + version + "\ndone " + it.Key)
			}
			b.Settle(i, version, err)
		}
		return nil
	})
	p.Doc = "Does what a test asks for."
	p.Concurrency, p.MaxBatch = 4, 8
	return p
}

// stage makes a program that is a version of the plugin.
func (s *site) stage(version string) (file string) {
	s.t.Helper()
	program := filepath.Join(s.dir, "stage-"+version)
	if _, err := os.Stat(program); err != nil {
		link(s.t, program)
	}
	s.write("ledgerd-plugin-stage-"+version, "#!/bin/sh\nexec "+program+"\n")
	return filepath.Join(s.dir, "ledgerd-plugin-stage-"+version)
}

// attemptsOf returns the attempts of all items of a kind.
func (s *site) attemptsOf(kind string) (all []stageAttempt) {
	s.t.Helper()
	for line := range strings.Lines(s.run(failure.ExitOK, "watch", "--kind", kind, "-n", "10000", "--limit",
		fmt.Sprint(s.done(kind)), "-o", "jsonl")) {
		var a stageAttempt
		must.OK(s.t, json.Unmarshal([]byte(line), &a))
		if a.Outcome != "" {
			all = append(all, a)
		}
	}
	return all
}

type stageAttempt struct{ Key, Outcome, Plugin string }

// replaced returns a function that reports whether a daemon has replaced its plugin so many times.
func (s *site) replaced(p *started, times int) func() bool {
	return func() bool { return strings.Count(p.stderr.String(), `"the plugin was replaced"`) == times }
}

// A plugin is replaced by another version while it works batches. The old process ends what it has begun, and only then
// does the new one begin. Nothing is lost or done twice, and each result names its version. A version that cannot start
// to work is reported, and can be replaced as well.
func TestUpgrade(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		s := m.site(strings.ReplaceAll(base, "kinds.effect", "kinds.stage"))
		s.run(failure.ExitOK, "plugin", "add", s.stage("1"))
		s.list("quick", 300)
		s.list("more", 100)
		p := s.daemon()
		s.run(failure.ExitOK, "add", "stage", "slow a", "slow b", "--set", "till="+filepath.Join(s.dir, "go"))
		effects := func(word string) map[string]int { return lines(t, filepath.Join(s.dir, "effects"), word) }
		s.until("the slow ones are begun", func() bool { return effects("start")["slow a"]+effects("start")["slow b"] >= 1 })
		s.run(failure.ExitOK, "add", "stage", "--from", filepath.Join(s.dir, "quick"), "--set", "ms=2")
		s.until("there is load", func() bool { return len(effects("done")) > 50 })
		s.run(failure.ExitOK, "plugin", "add", s.stage("2"))
		s.signal(p, syscall.SIGHUP) // makes the daemon check at once
		s.until("the daemon has seen it", func() bool { return strings.Contains(p.stderr.String(), "is replaced") })
		s.run(failure.ExitOK, "add", "stage", "--from", filepath.Join(s.dir, "more"), "--set", "ms=2") // however fast
		s.write("go", "")
		s.until("the other version works", s.replaced(p, 1))
		s.until("all are done", func() bool { return s.done("stage") == 402 })
		for key, n := range effects("done") {
			if n != 1 {
				t.Errorf("%s was done %d times", key, n)
			}
		}
		if len(effects("done")) != 402 {
			t.Errorf("%d effects", len(effects("done")))
		}
		by := map[string]int{}
		for _, a := range s.attemptsOf("stage") {
			version, _, _ := strings.Cut(a.Plugin, "+")
			by[version]++
		}
		if by["stage@1.0.0"] < 50 || by["stage@2.0.0"] < 50 || by["stage@1.0.0"]+by["stage@2.0.0"] < 402 {
			t.Errorf("done by %v", by)
		}
		text, err := os.ReadFile(filepath.Join(s.dir, "effects"))
		must.OK(t, err)
		if _, after, began := strings.Cut(string(text), "by 2.0.0\n"); !began || strings.Contains(after, "by 1.0.0\n") {
			t.Errorf("the new version began before the old one had ended:\n%s", text)
		}

		// The config starts the plugin in another way: another process takes over.
		s.write("ledgerd.toml", strings.ReplaceAll(base, "kinds.effect", "kinds.stage")+"[plugins.stage]\nopen_files = 64\n")
		s.signal(p, syscall.SIGHUP)
		s.until("another process works", s.replaced(p, 2))

		// The plugin accepts this config, but cannot start to work with it.
		s.write("ledgerd.toml", strings.ReplaceAll(base, "kinds.effect", "kinds.stage")+"broken = true\n")
		s.run(failure.ExitOK, "plugin", "add", s.stage("3"))
		s.signal(p, syscall.SIGHUP)
		s.until("it reports so", func() bool {
			_, answer := s.ready(p)
			return answer.Kinds["stage"] == "plugin_open"
		})
		if _, body := s.ask(p, "/metrics"); !strings.Contains(body, "ledger_plugin_up{kind=\"stage\"} 0\n") {
			t.Errorf("no metric of the kind that is not worked\n%s", body)
		}
		s.until("the log has the reason", func() bool { // a moment after the state
			return strings.Contains(p.stderr.String(), "the model of version 3 is not there")
		})
		s.run(failure.ExitOK, "add", "stage", "later")
		s.write("ledgerd.toml", strings.ReplaceAll(base, "kinds.effect", "kinds.stage"))
		s.signal(p, syscall.SIGHUP)
		s.until("it is done", func() bool { return s.done("stage") == 403 })
		if text := s.run(failure.ExitOK, "show", "later", "-o", "json"); !strings.Contains(text, `"plugin": "stage@3.0.0+`) {
			t.Errorf("by another one:\n%s", text)
		}
		s.stop(p, syscall.SIGTERM, failure.ExitOK)
		s.run(failure.ExitOK, "db", "verify")
	})
}

// At SIGHUP a kind gets the plugin that the config now names for it.
func TestOtherPlugin(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		const with = "[kinds.job.with]\npath = \"DIR/effects\"\n"
		const listen = "listen = \"127.0.0.1:0\"\n"
		s := m.site(listen + "[kinds.job]\nplugin = \"effect\"\n" + with)
		s.run(failure.ExitOK, "plugin", "add", s.stage("1"))
		p := s.daemon()
		s.run(failure.ExitOK, "add", "job", "one")
		s.until("the first plugin has done it", func() bool { return s.done("job") == 1 })
		s.write("ledgerd.toml", listen+"[kinds.job]\nplugin = \"stage\"\n"+with)
		s.signal(p, syscall.SIGHUP)
		s.until("another plugin works", s.replaced(p, 1))
		s.run(failure.ExitOK, "add", "job", "two")
		s.until("it is done", func() bool { return s.done("job") == 2 })
		for key, want := range map[string]string{"one": "effect@0.1.0", "two": "stage@1.0.0"} {
			if text := s.run(failure.ExitOK, "show", key, "-o", "json"); !strings.Contains(text, `"plugin": "`+want+`+`) {
				t.Errorf("%s was not done by %s:\n%s", key, want, text)
			}
		}
		s.stop(p, syscall.SIGTERM, failure.ExitOK)
	})
}

// A config that is read again while the plugin of a kind starts holds for the kind.
func TestReloadWhileStarting(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		config := func(most string) string {
			return strings.ReplaceAll(base, "kinds.effect", "kinds.stage") +
				"till = \"DIR/go\"\n[kinds.stage]\nmax_failures = " + most + "\n"
		}
		s := m.site(config("2"))
		s.run(failure.ExitOK, "plugin", "add", s.stage("1"))
		p := s.start("serve", "--config", s.config)
		s.until("the plugin is being started", func() bool {
			_, err := os.Stat(filepath.Join(s.dir, "go.seen"))
			return err == nil
		})
		s.write("ledgerd.toml", config("3"))
		s.signal(p, syscall.SIGHUP)
		s.until("the config is read", func() bool { return strings.Contains(p.stderr.String(), "was read anew") })
		s.write("go", "")
		s.until("the kind is worked", func() bool { code, _ := s.ready(p); return code == http.StatusOK })
		if text := s.run(failure.ExitOK, "kind", "ls", "-o", "json"); !strings.Contains(text, `"max_failures":3`) {
			t.Errorf("the kind has the config of before:\n%s", text)
		}
		s.stop(p, syscall.SIGTERM, failure.ExitOK)
	})
}

// TestFetch: a machine gets its plugins from the sources in the config, and starts no other program.
func TestFetch(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		s := m.site("")
		server := httptest.NewServer(http.FileServer(http.Dir(s.dir)))
		defer server.Close()
		from := func(version string) (url, sum string) {
			program, err := os.ReadFile(s.stage(version))
			must.OK(t, err)
			return server.URL + "/ledgerd-plugin-stage-" + version, fmt.Sprintf("%x", sha256.Sum256(program))
		}
		first, sum := from("1")
		s.run(failure.ExitDenied, "plugin", "add", first)
		s.run(failure.ExitDenied, "plugin", "add", first, "--sha256", strings.Repeat("0", 64))
		s.run(failure.ExitOK, "plugin", "add", first, "--sha256", sum)

		second, other := from("2")
		run := func(code int, args ...string) string { return s.run(code, append(args, "--config", s.config)...) }
		named := func(url string, sums ...string) {
			s.write("ledgerd.toml", fmt.Sprintf("[kinds.stage.with]\npath = %q\n[plugins.stage]\nsource = %q\nsha256 = [\"%s\"]\n",
				filepath.Join(s.dir, "effects"), url, strings.Join(sums, `", "`)))
		}
		must.OK(t, os.Rename(s.stage("2"), filepath.Join(s.dir, "ledgerd-plugin-stage-"+runtime.GOOS)))
		named(strings.TrimSuffix(second, "2")+"{os}", strings.Repeat("0", 64), other)
		run(failure.ExitDenied, "run", "stage", "before") // with the program of before
		run(failure.ExitOK, "plugin", "fetch")
		run(failure.ExitOK, "run", "stage", "after")
		server.Close()
		if text := run(failure.ExitOK, "plugin", "fetch", "-o", "json"); !strings.Contains(text, `"result":"here"`) {
			t.Errorf("fetched once more:\n%s", text)
		}
		named(first, sum)
		if text := run(failure.ExitError, "plugin", "fetch"); !strings.Contains(text, "connection refused") {
			t.Errorf("from a server that is gone:\n%s", text)
		}
		named(second, other)
		run(failure.ExitOK, "run", "stage", "still")
	})
}
