package work

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"testing"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/daemon"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/version"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// TestAttemptInLog: the line of an attempt names its item by number and key, without the password of a URL.
func TestAttemptInLog(t *testing.T) {
	var out bytes.Buffer
	a := app.New(&app.Interrupts{Soft: t.Context(), Hard: t.Context()}, app.Program{}, os.Stdin, io.Discard, &out)
	must.OK(t, a.Configure(WorkCommand(a).Flags()))
	a.Log = a.DaemonLogger()
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	s := &server{App: a, metrics: daemon.NewMetrics(version.String(), l, daemon.State{}), life: t.Context()}
	lease := &ledger.Lease{Item: ledger.Item{ID: 7, Kind: "urlcheck", Key: "https://ann:hunter2@a.example/x"}}
	s.attempt(worker.Event{Lease: lease, Recorded: ledger.OutcomeFailed, State: ledger.StateDead,
		Round: ledger.RoundFailed})
	var line struct {
		Item int64
		Key  string
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Item != 7 ||
		line.Key != "https://ann:***@a.example/x" {
		t.Errorf("%v: %s", err, out.String())
	}
}
