package app

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rivo/uniseg"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/runner"
)

// TestProgress: plain progress is a line every ten seconds until Stop; off shows nothing.
func TestProgress(t *testing.T) {
	for how, want := range map[string]string{
		"plain": "[10s] 2,500 of 10,000 ended, 12 failures, 250/s   big.csv 42 %\n[20s] 2,500 of 10,000 ended, 12 " +
			"failures, 125/s\n",
		"off": "",
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			a := quietApp(&out)
			a.Progress = ChoiceFlag{Value: how}
			p := runner.Progress{Total: 10_000, Ended: 2500, Done: 2490, Failed: 10, Failing: 12, Attempts: 2500}
			began := time.Now()
			s := a.StartProgress(func() runner.Progress {
				now := p
				if time.Since(began) <= 10*time.Second {
					now.Item = &runner.ItemProgress{ID: 1, Key: "/in/big.csv", Done: 420, Total: 1000, Unit: "bytes"}
				}
				return now
			})
			<-time.After(25 * time.Second)
			s.Stop()
			if diff := cmp.Diff(want, out.String()); diff != "" {
				t.Errorf("%s: %s", how, diff)
			}
		})
	}
}

// shared is a buffer that is read while the bar writes into it.
type shared struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *shared) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(text)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// TestBarFits: a line of the bar is never wider than the terminal, so it never wraps.
func TestBarFits(t *testing.T) {
	for width, age := range map[int]time.Duration{60: 700 * time.Second, 80: 2 * time.Second, 132: 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var out shared
			bar, description := quietApp(&out).bar(width)
			p := runner.Progress{Total: 1_000_000, Ended: 654_321, Failed: 123_456, Attempts: 654_321,
				Item: &runner.ItemProgress{ID: 1, Key: "/in/a-file-with-a-long-name.csv", Done: 420, Total: 1000, Unit: "bytes"}}
			showBar(bar, description, p)
			<-time.After(age)
			shown := out.String()
			must.OK(t, bar.Finish())
			<-time.After(time.Second) // it ends at its next look
			for line := range strings.SplitSeq(shown, "\r") {
				if n := uniseg.StringWidth(strings.TrimRight(line, " ")); n > width {
					t.Errorf("%d cells on a terminal of %d: %q", n, width, line)
				}
			}
			if !strings.Contains(shown, "(654321/1000000") || age > time.Minute && !strings.Contains(shown, "[11m") {
				t.Errorf("%.300q", shown)
			}
		})
	}
}

func TestProgressJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		a := quietApp(&out)
		a.Progress = ChoiceFlag{Value: "json"}
		s := a.StartProgress(func() runner.Progress { return runner.Progress{Total: 4, Ended: 1, Done: 1, Attempts: 3} })
		<-time.After(1500 * time.Millisecond)
		s.Stop()
		var got map[string]any
		must.OK(t, json.Unmarshal(out.Bytes(), &got))
		want := map[string]any{"type": "progress", "total": 4., "ended": 1., "done": 1., "failed": 0., "failing": 0.,
			"seconds": 1., "per_second": 3.}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestNowAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n runner.LatestProgress
		if n.Item() != nil {
			t.Error("something before anything was said")
		}
		n.Set(pluginhost.Progress{ItemID: 7, Key: "/in/a.csv", Done: 1234, Unit: "rows"})
		if got := n.Item().String(); got != "a.csv 1,234 rows" {
			t.Error(got)
		}
		<-time.After(runner.Lately + time.Second)
		if n.Item() != nil {
			t.Error("old news")
		}
	})
}
