package intake

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// A file that was just written is checked again a second later, and left out only if it has changed meanwhile.
func TestYoung(t *testing.T) {
	tree(t, "in/copied.csv=1", "in/growing.csv=1", "in/old.csv=1", "in/vanishing.csv=1", "named.csv=1")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now() // the bubble's clock
		at := func(name string, age time.Duration) {
			when := began.Add(-age)
			if err := os.Chtimes(name, when, when); err != nil {
				t.Error(err)
			}
		}
		at("in/old.csv", youngAge)
		for _, name := range []string{"in/copied.csv", "in/growing.csv", "in/vanishing.csv", "named.csv"} {
			at(name, youngAge-time.Millisecond)
		}
		go func() {
			<-time.After(settleTime / 2)
			at("in/growing.csv", 0)
			if err := os.Remove("in/vanishing.csv"); err != nil {
				t.Error(err)
			}
		}()
		got, err := read(t, Source{Input: ledger.Input{Type: File}, Args: []string{"in"}})
		must.OK(t, err)
		want := []string{"+ in/old.csv", "+ in/copied.csv", "- in/growing.csv: still being written",
			"- in/vanishing.csv: no such file or directory"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if waited := time.Since(began); waited != settleTime {
			t.Errorf("waited %s for all of them, want %s", waited, settleTime)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		must.OK(t, os.Chtimes("named.csv", began, began))
		must.Do(t)(read(t, Source{Input: ledger.Input{Type: File}, Args: []string{"named.csv"}}))
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited %s for a file that was named", waited)
		}
	})
}
