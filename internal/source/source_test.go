package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

type states = map[string]ledger.State

func folder(root string) config.Source {
	return config.Source{Name: "inbox", Type: "folder", Path: root, Schedule: "1s", Recursive: true,
		Settle: 200 * time.Millisecond, Finished: "keep"}
}

// TestFolder: files that are copied in slowly, renamed, replaced and removed, in a folder that is watched.
func TestFolder(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		root := t.TempDir()
		in := func(name string) string { return filepath.Join(root, name) }
		write(t, in("old.csv"), "1")
		write(t, in("deep/er.csv"), "1")
		write(t, in("no.txt"), "1")
		write(t, in("half.csv.part"), "1")
		const pieces = 10
		ahead := time.Now().Add(time.Hour) // the clock of the file server; so only changes tell that it is being written
		var slow atomic.Int32
		s := p.start(t, folder(root), func(c *Config) {
			told := c.Observe
			c.Observe = func(l Look) { // a piece after every look
				if n := slow.Load(); n > 0 && n < pieces {
					if l.Verdicts[ledger.VerdictAdded] > 0 {
						t.Errorf("taken while it was being written: %+v", l)
					}
					extend(t, in("slow.csv"), ahead)
					slow.Add(1)
				}
				told(l)
			}
		})
		s.until("what was there is added", func(l Look) bool { return l.Verdicts[ledger.VerdictAdded] == 2 })
		extend(t, in("slow.part"), ahead)
		must.OK(t, os.Rename(in("slow.part"), in("slow.csv")))
		slow.Store(1)
		s.until("it is seen", func(l Look) bool { return l.Young == 1 })
		s.until("it is taken when it is whole", func(l Look) bool {
			return l.Verdicts[ledger.VerdictAdded] == 1 && l.Young == 0
		})
		it, err := p.Find(t.Context(), "check", "", in("slow.csv"))
		if err != nil || !strings.HasPrefix(it.Fingerprint, "60-") || it.Source != "inbox" {
			t.Errorf("%+v, %v; want 60 bytes of source inbox", it, err)
		}

		must.OK(t, os.Rename(in("half.csv.part"), in("half.csv")))
		s.until("a file that got its name is added", func(l Look) bool { return l.Verdicts[ledger.VerdictAdded] == 1 })
		must.OK(t, os.Remove(in("old.csv")))
		write(t, in("new"), "22")
		must.OK(t, os.Rename(in("new"), in("half.csv")))
		s.until("a file that was replaced is another version", func(l Look) bool {
			return l.Verdicts[ledger.VerdictChanged] == 1
		})
		s.until("nothing more", func(l Look) bool { return l.Found == 3 && l.Verdicts[ledger.VerdictKnown] == 3 })
		want := states{"old.csv": "ready", "deep/er.csv": "ready", "slow.csv": "ready", "half.csv": "ready"}
		if diff := cmp.Diff(want, p.states(t, root)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestFolderRules: include, exclude, and only the folder itself.
func TestFolderRules(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		root := t.TempDir()
		for _, name := range []string{"a.csv", "b.dat", "tmp/c.csv", "tmp/e.dat", "deep/d.csv"} {
			write(t, filepath.Join(root, name), "1")
		}
		spec := folder(root)
		spec.Include, spec.Exclude = []string{"*.dat"}, []string{"tmp"}
		p.start(t, spec).look()
		if diff := cmp.Diff(states{"b.dat": "ready"}, p.states(t, root)); diff != "" {
			t.Error(diff)
		}
		flat := folder(filepath.Join(root, "deep"))
		flat.Name, flat.Path, flat.Recursive = "flat", root, false
		if l := p.start(t, flat).look(); l.Found != 1 {
			t.Errorf("%+v, want the one file of the folder itself", l)
		}
	})
}

// TestCancelled: a look tells how many of the items that are listed again are cancelled, and left so.
func TestCancelled(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		root := t.TempDir()
		write(t, filepath.Join(root, "a.csv"), "1")
		write(t, filepath.Join(root, "b.csv"), "2")
		s := p.start(t, folder(root))
		if l := s.look(); l.Cancelled != 0 {
			t.Errorf("%+v", l)
		}
		must.Do(t)(p.Cancel(t.Context(), "test", ledger.Filter{KeyHas: "a.csv"}))
		if l := s.until("one is cancelled", func(l Look) bool { return l.Cancelled == 1 }); l.Found != 2 {
			t.Errorf("%+v, want both files listed", l)
		}
	})
}

// TestFinished: files are put away once their items are done, in the version that was done.
func TestFinished(t *testing.T) {
	for _, what := range []string{"move", "delete"} {
		t.Run(what, func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				root, away := t.TempDir(), filepath.Join(t.TempDir(), "away")
				in := func(name string) string { return filepath.Join(root, name) }
				write(t, in("deep/good.csv"), "good")
				write(t, in("changed.csv"), "old")
				spec := folder(root)
				spec.Finished = what
				if what == "move" {
					spec.MoveTo = away
					write(t, filepath.Join(away, "deep/good.csv"), "there already")
				}
				s := p.start(t, spec)
				s.look()
				s.stop()
				write(t, in("changed.csv"), "newer") // the worker has seen the old one
				p.work(t, 2, ledger.Done(nil))
				s = p.start(t, spec)
				s.until("the done one is put away", func(l Look) bool { return l.Finished == 1 })
				if exists(in("deep/good.csv")) || !exists(in("changed.csv")) {
					t.Error("the wrong file was put away")
				}
				p.work(t, 1, ledger.Permanent(fmt.Errorf("bad")))
				if l := s.look(); l.Finished != 0 || !exists(in("changed.csv")) {
					t.Errorf("a file of a dead item was put away: %+v", l)
				}
				if what == "move" {
					text, err := os.ReadFile(filepath.Join(away, "deep/good.csv.1"))
					if string(text) != "good" {
						t.Errorf("moved: %q, %v", text, err)
					}
				}
				if diff := cmp.Diff(states{"deep/good.csv": "done", "changed.csv": "dead"}, p.states(t, root)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestStays: a finished file that cannot be put away makes the look fail, until it can.
func TestStays(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		root, away := t.TempDir(), filepath.Join(t.TempDir(), "away")
		long := filepath.Join(root, strings.Repeat("ü", 125)+".csv")
		write(t, long, "1")
		write(t, away, "a file where the folder should be")
		spec := folder(root)
		spec.Finished, spec.MoveTo = "move", away
		s := p.start(t, spec)
		s.look()
		p.work(t, 1, ledger.Done(nil))
		l := s.until("it reports why the file stays", func(l Look) bool { return l.Err != nil })
		if !strings.Contains(l.Err.Error(), "a finished file cannot be put away: ") || !exists(long) {
			t.Errorf("%v", l.Err)
		}
		must.OK(t, os.Remove(away))
		s.until("the file is put away", func(l Look) bool { return l.Err == nil && l.Finished == 1 })
		if !exists(filepath.Join(away, filepath.Base(long))) {
			t.Error("it is not there")
		}
	})
}

// TestMoveIntoItself: through a link, too, a file is not moved to where it is found again.
func TestMoveIntoItself(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		root, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
		must.OK(t, os.Symlink(root, link))
		write(t, filepath.Join(root, "a.csv"), "1")
		spec := folder(link)
		spec.Finished, spec.MoveTo = "move", filepath.Join(root, "done", "deep")
		if l := p.start(t, spec).look(); l.Err == nil || l.Found > 0 {
			t.Errorf("%+v", l)
		}
	})
}

// TestLeft: the error of a file that is not taken is logged, once.
func TestLeft(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		root := t.TempDir()
		for name, to := range map[string]string{"lost.csv": "nowhere", "a.part": "nowhere"} {
			must.OK(t, os.Symlink(to, filepath.Join(root, name)))
		}
		write(t, filepath.Join(root, "no.txt"), "1")
		var log strings.Builder
		spec := folder(root)
		spec.FollowLinks = true
		s := p.start(t, spec, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		for range 3 {
			if l := s.look(); l.Err != nil || l.Left != 1 {
				t.Errorf("%+v", l)
			}
		}
		s.stop()
		if st := s.Status(); st.Wrong != 1 || st.Good.IsZero() {
			t.Errorf("%+v", st)
		}
		if text := log.String(); strings.Count(text, "a file of the source is left out") != 1 ||
			!strings.Contains(text, "a link to something that does not exist") {
			t.Error(text)
		}
	})
}

// TestOneLooks: of two daemons one looks at a source, and the other takes over from it.
func TestOneLooks(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		root := t.TempDir()
		write(t, filepath.Join(root, "a.csv"), "1")
		first := p.start(t, folder(root))
		first.look()
		second := p.start(t, folder(root), func(c *Config) { c.Agent = "other" })
		for range 3 {
			select {
			case <-first.looks:
			case <-second.looks:
				t.Fatal("both look")
			}
		}
		first.stop()
		second.look()
		if st := second.Status(); !st.Looking || st.Holder != "" {
			t.Errorf("%+v", st)
		}
	})
}

// TestFailing: a source that fails reports it, is tried again, and is well again.
func TestFailing(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		root := filepath.Join(t.TempDir(), "comes later")
		s := p.start(t, folder(root))
		s.look()
		if l := s.look(); l.Err == nil || !strings.Contains(s.Status().Error, "no such file") {
			t.Fatalf("%+v, %+v", l, s.Status())
		}
		write(t, filepath.Join(root, "a.csv"), "1")
		s.until("it is well again", func(l Look) bool { return l.Err == nil && l.Found == 1 })
		s.until("it reports that", func(Look) bool { return s.Status().Error == "" })
	})
}

// TestClockSetBack: a wall clock that is set back does not put off the next look by as much.
func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := place{Ledger: opened(t, memory.New(memory.Options{}), nil)}
		file := filepath.Join(t.TempDir(), "list")
		write(t, file, "https://a.example/\n")
		latest := time.Now().Add(2 * time.Hour)
		var back atomic.Int64
		s := p.start(t, config.Source{Name: "links", Type: "list", Path: file, Schedule: "hour", Local: true},
			func(c *Config) { c.now = func() time.Time { return time.Now().Add(-time.Duration(back.Load())) } })
		<-s.looks
		synctest.Wait() // for the next look
		back.Store(int64(48 * time.Hour))
		if <-s.looks; time.Now().After(latest) {
			t.Errorf("the next look was at %s", time.Now())
		}
	})
}

// TestHangingLook: the time of the next look lies in the past while a look is under way, also of the first one.
func TestHangingLook(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		asked := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(asked)
			<-r.Context().Done()
		}))
		defer server.Close()
		defer http.DefaultClient.CloseIdleConnections()
		s := p.start(t, config.Source{Name: "links", Type: "list", URL: server.URL, Schedule: "7d"})
		<-asked
		if st := s.Status(); !st.Looking || st.Next.IsZero() || st.Next.After(time.Now()) {
			t.Errorf("%+v", st)
		}
		s.stop()
	})
}

// brokenOnce is a store of which the first transaction that writes fails.
type brokenOnce struct {
	ledger.Store
	writes atomic.Int64
}

func (s *brokenOnce) Update(ctx context.Context, conn ledger.Conn, do func(ledger.Tx) error) error {
	if s.writes.Add(1) == 1 {
		return ledger.ErrUnavailable
	}
	return s.Store.Update(ctx, conn, do)
}

// TestBatchFails: a batch that cannot be added ends the look, and is not tried again in it.
func TestBatchFails(t *testing.T) {
	store := &brokenOnce{Store: memory.New(memory.Options{})}
	s := New(Config{Ledger: opened(t, store, nil), Spec: &config.Source{Name: "links", Type: "list"},
		Log: slog.New(slog.DiscardHandler)})
	from := &intake.Source{From: intake.Stdin, Input: ledger.Input{Type: intake.URL},
		Template: ledger.NewItem{Kind: "check"}}
	var lines strings.Builder
	for i := range batch {
		fmt.Fprintf(&lines, "https://a.example/%d\n", i)
	}
	from.Stdin = strings.NewReader(lines.String())
	l := Look{Verdicts: map[ledger.Verdict]int64{}}
	if err := s.take(t.Context(), from, &l, nil); !errors.Is(err, ledger.ErrUnavailable) || l.Found > 0 {
		t.Errorf("%v, %+v", err, l)
	}
}

// TestTraced: each look is a trace of its own, with what it added.
func TestTraced(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	p := place{Ledger: ledger.New(memory.New(memory.Options{}), ledger.Options{TracerProvider: provider})}
	root := t.TempDir()
	write(t, filepath.Join(root, "a.csv"), "1")
	s := p.start(t, folder(root), func(c *Config) { c.TracerProvider = provider })
	s.until("the file is found", func(l Look) bool { return l.Found == 1 })
	names, added := map[trace.SpanID]string{}, false
	for _, span := range spans.Ended() {
		names[span.SpanContext().SpanID()] = span.Name()
	}
	for _, span := range spans.Ended() {
		of := names[span.Parent().SpanID()]
		added = added || span.Name() == "add check" && of == "source look"
		if span.Name() == "source look" && of != "" {
			t.Errorf("a look is part of %q", of)
		}
	}
	if !added {
		t.Errorf("no look has the span of adding: %v", names)
	}
}

// TestLocal: a folder that only this machine sees adds nothing to a kind that others work as well.
func TestLocal(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		root := t.TempDir()
		write(t, filepath.Join(root, "a.csv"), "1")
		other := ledger.Agent{Name: "there/1", Host: "there", PID: 1, Kinds: map[string]string{"check": "check@1"}}
		must.OK(t, p.Beat(t.Context(), other, time.Minute))
		spec := folder(root)
		spec.Local = true
		s := p.start(t, spec)
		if l := s.look(); l.Err == nil || !strings.Contains(l.Err.Error(), `kind "check" is worked on there as well`) ||
			l.Found != 0 {
			t.Fatalf("%+v", l)
		}
		must.OK(t, p.Beat(t.Context(), other, 0))
		s.until("the other one is gone", func(l Look) bool { return l.Err == nil && l.Found == 1 })
	})
}

// TestSettling: when a file is taken, by two clocks.
func TestSettling(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	now := time.Now()
	s := newSettling(10 * time.Second)
	s.now = func() time.Time { return now }
	for i, step := range []struct {
		passes  time.Duration // since the step before
		changed time.Duration // the file, from now; 0: it stays
		want    bool
	}{
		{0, -61 * time.Second, true},            // old at the first sight
		{time.Second, -11 * time.Second, false}, // by a clock that is behind
		{5 * time.Second, -11 * time.Second, false},
		{10 * time.Second, 0, true},
		{time.Second, -time.Second, false},
		{5 * time.Second, 0, false},
		{5 * time.Second, 0, true},
		{time.Second, time.Hour, false}, // by a clock that is ahead
		{9 * time.Second, 0, false},
		{time.Second, 0, true},
		{time.Second, 0, true},                  // and it stays settled
		{time.Second, -11 * time.Second, false}, // another version, though an old one
		{11 * time.Second, 0, true},
	} {
		now = now.Add(step.passes)
		if step.changed != 0 {
			write(t, path, "x")
			at := now.Add(step.changed)
			must.OK(t, os.Chtimes(path, at, at))
		}
		info, err := os.Stat(path)
		must.OK(t, err)
		s.begin()
		if got := s.settled(path, info); got != step.want || s.young != map[bool]int{false: 1}[step.want] {
			t.Errorf("step %d: settled %v, %d young", i, got, s.young)
		}
	}
}
