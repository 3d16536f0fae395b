package late

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/pgtest"

	"github.com/ledgerd/ledgerd/bench/internal/ours"
)

// TestMain runs the first worker if the test program is started for that.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "hold" {
		if err := Hold(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// ledgerd refuses the end that comes too late and keeps the second worker's result. bench/HISTORY.md states that these
// versions of the other queues accept it.
func TestLate(t *testing.T) {
	all, err := All(t.Context(), &ours.Bench{Postgres: pgtest.URL(t), Dir: t.TempDir()}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 4 {
		t.Fatalf("%d outcomes", len(all))
	}
	for _, o := range all {
		if o.Queue != "ledgerd" {
			if !o.Accepted {
				t.Errorf("%s refuses by now: say so in bench/HISTORY.md: %+v", o.Queue, o)
			}
			continue
		}
		if o.Accepted || !strings.HasPrefix(o.Told, "ErrLeaseLost") {
			t.Errorf("%s: %+v", o.Database, o)
		}
		if want := "item waiting for another try: attempt 1 of the first worker lost, attempt 2 of the second worker failed"; o.End != want {
			t.Errorf("%s: in the end %q, want %q", o.Database, o.End, want)
		}
	}
}
