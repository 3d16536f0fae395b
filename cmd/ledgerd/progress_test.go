package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/pluginhost"
)

// TestProgress: what is shown, how often, and that nothing is shown after the end.
func TestProgress(t *testing.T) {
	for how, want := range map[string]string{
		"plain": "[10s] 2,500 of 10,000 ended, 12 failures, 250/s   big.csv 42 %\n[20s] 2,500 of 10,000 ended, 12 failures, 125/s\n",
		"off":   "",
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			a := testApp(&out)
			a.progress = choice{value: how}
			p := progress{Total: 10_000, Ended: 2500, Done: 2490, Failed: 10, Failing: 12, attempts: 2500}
			began := time.Now()
			s := a.startProgress(func() progress {
				now := p
				if time.Since(began) <= 10*time.Second {
					now.Item = &itemProgress{1, "/in/big.csv", 420, 1000, "bytes"}
				}
				return now
			})
			<-time.After(25 * time.Second)
			s.stop()
			if diff := cmp.Diff(want, out.String()); diff != "" {
				t.Errorf("%s: %s", how, diff)
			}
		})
	}
}

func TestProgressJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		a := testApp(&out)
		a.progress = choice{value: "json"}
		s := a.startProgress(func() progress { return progress{Total: 4, Ended: 1, Done: 1, attempts: 3} })
		<-time.After(1500 * time.Millisecond)
		s.stop()
		var got map[string]any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"type": "progress", "total": 4., "ended": 1., "done": 1., "failed": 0., "failing": 0., "seconds": 1., "per_second": 3.}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestNowAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n nowAt
		if n.item() != nil {
			t.Error("something before anything was said")
		}
		n.set(pluginhost.Progress{ItemID: 7, Key: "/in/a.csv", Done: 1234, Unit: "rows"})
		if got := n.item().String(); got != "a.csv 1,234 rows" {
			t.Error(got)
		}
		<-time.After(lately + time.Second)
		if n.item() != nil {
			t.Error("old news")
		}
	})
}
