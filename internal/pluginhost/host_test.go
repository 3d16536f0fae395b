package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk"
)

// in says what the plugin is to do with an item.
type in struct {
	Do string `json:"do" input:"line"`
}

type config struct {
	Answer string `json:"answer" default:"yes"`
}

// act is the plugin of these tests: it does what the item says.
func act(ctx context.Context, cfg *config, it sdk.Item[in]) (string, error) {
	switch it.Payload.Do {
	case "die":
		fmt.Fprintln(os.Stderr, "last words")
		os.Exit(3)
	case "hang":
		select {}
	case "wait":
		<-ctx.Done()
		return "", context.Cause(ctx)
	case "panic":
		panic("at the disco")
	case "fail":
		return "half", sdk.Permanent(sdk.Code("no_way", errors.New("cannot be done")))
	case "emit":
		return "ok", it.Emit(sdk.Child{Kind: "child", Key: "c"})
	}
	return cfg.Answer, nil
}

func actor() *sdk.Plugin {
	p := sdk.New("actor", "1.0.0", act)
	p.Concurrency, p.Emits = 4, []string{"child"}
	return p
}

func TestMain(m *testing.M) {
	if sdk.Started() {
		sdk.Serve(actor())
	}
	goleak.VerifyTestMain(m)
}

// place is the test binary, which is the plugin when it is started as one.
func place(t testing.TB) Place {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Place{Name: "actor", Path: self, Args: []string{"actor"}, Origin: "bundled"}
}

func startHost(t testing.TB, settings string) *Host {
	t.Helper()
	h, err := Start(t.Context(), Config{Spec: Spec{Place: place(t)}, Settings: []byte(settings)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close(time.Second) })
	return h
}

// drained adds items that do what they say, works them and returns them by what they say.
func drained(t *testing.T, h *Host, policy ledger.Kind, do ...string) (map[string]ledger.Item, *ledger.Ledger) {
	t.Helper()
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{Jitter: func() float64 { return 0 }})
	policy.Name = "actor"
	if err := l.SetKind(t.Context(), "test", policy); err != nil {
		t.Fatal(err)
	}
	items := make([]ledger.NewItem, len(do))
	for i, d := range do {
		items[i] = ledger.NewItem{Kind: "actor", Key: d, Payload: ledger.JSON(in{Do: d})}
	}
	if _, err := l.Add(t.Context(), items...); err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(worker.Config{Ledger: l, Handlers: map[string]worker.Handler{"actor": h}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := w.Drain(ctx, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	got := map[string]ledger.Item{}
	for it, err := range l.List(t.Context(), ledger.Filter{Kinds: []string{"actor"}}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		got[it.Key] = it
	}
	return got, l
}

func TestThousandItems(t *testing.T) {
	var do []string
	for i := range 1000 {
		do = append(do, fmt.Sprint("item ", i))
	}
	got, l := drained(t, startHost(t, `{"answer":"of course"}`), ledger.Kind{}, do...)
	for _, it := range got {
		as, err := l.Attempts(t.Context(), it.ID)
		if err != nil || it.State != ledger.StateDone || len(as) != 1 || string(as[0].Output) != `"of course"` {
			t.Fatalf("%+v: %+v, %v", it, as, err)
		}
	}
	if len(got) != 1000 {
		t.Fatalf("%d items", len(got))
	}
}

func TestOutcomes(t *testing.T) {
	h := startHost(t, "")
	got, l := drained(t, h, ledger.Kind{MaxFailures: 1}, "fail", "panic", "emit", "fine")
	for key, want := range map[string][2]string{"fail": {"dead", "no_way"}, "panic": {"dead", "panic"}, "emit": {"done", ""}, "fine": {"done", ""}} {
		if it := got[key]; string(it.State) != want[0] || it.Code != want[1] {
			t.Errorf("%s: %s %q %s", key, it.State, it.Code, it.Error)
		}
	}
	if _, err := l.Find(t.Context(), "child", fmt.Sprintf("actor/%d", got["emit"].ID), "c"); err != nil {
		t.Errorf("emitted: %v", err)
	}
}

// An item that kills its process is found; its neighbours are done.
func TestPoisonItem(t *testing.T) {
	do := []string{"die"}
	for i := range 20 {
		do = append(do, fmt.Sprint("item ", i))
	}
	got, _ := drained(t, startHost(t, ""), ledger.Kind{Backoff: ledger.Backoff{Base: time.Millisecond, Cap: time.Millisecond}}, do...)
	for key, it := range got {
		want := ledger.StateDone
		if key == "die" {
			want = ledger.StateDead
		}
		if it.State != want {
			t.Errorf("%s is %s after %d crashes: %s", key, it.State, it.Crashes, it.Error)
		}
	}
	if it := got["die"]; it.Crashes != ledger.DefaultMaxCrashes || it.Code != "crashed" {
		t.Errorf("%+v", it)
	}
}
