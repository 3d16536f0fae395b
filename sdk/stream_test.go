package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

type task1 struct {
	Do string `json:"do"`
}

func do(what string) string { return fmt.Sprintf(`{"do":%q}`, what) }

// whims are the ways in which a function can end.
var whims = map[string]struct {
	outcome wire.Result_Outcome
	code    string
	end     func() error
}{
	"done":    {wire.Result_OUTCOME_DONE, "", func() error { return nil }},
	"fail":    {wire.Result_OUTCOME_FAILED, "", func() error { return errBoom }},
	"code":    {wire.Result_OUTCOME_FAILED, "why", func() error { return Code("why", errBoom) }},
	"skip":    {wire.Result_OUTCOME_SKIPPED, "", func() error { return Skip("nothing") }},
	"snooze":  {wire.Result_OUTCOME_SNOOZED, "", func() error { return Snooze(time.Second, "later") }},
	"doubt":   {wire.Result_OUTCOME_UNKNOWN, "", func() error { return Doubt(errBoom) }},
	"panic":   {wire.Result_OUTCOME_FAILED, "panic", func() error { panic("boom") }},
	"nil map": {wire.Result_OUTCOME_FAILED, "panic", func() error { fill(nil); return nil }},
	"goexit":  {wire.Result_OUTCOME_FAILED, "panic", func() error { runtime.Goexit(); return nil }},
	"yield":   {wire.Result_OUTCOME_DONE, "", func() error { runtime.Gosched(); return nil }},
}

// fill panics when it is given no map.
func fill(m map[int]int) { m[0] = 1 }

func whimsical(_ context.Context, _ *struct{}, it Item[task1]) (string, error) {
	return "out", whims[it.Payload.Do].end()
}

// Every item gets exactly one result, its own, after any behaviour of the function.
func TestEveryItemOneResult(t *testing.T) {
	names := []string{"wrong payload"}
	for name := range whims {
		names = append(names, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := New("p", "0.1.0", whimsical)
		if rapid.Bool().Draw(t, "batch") {
			p = NewBatch("p", "0.1.0", func(ctx context.Context, cfg *struct{}, b *Batch[task1, string]) error {
				for i, it := range b.Items {
					if it.Payload.Do != "panic" && it.Payload.Do != "goexit" && it.Payload.Do != "nil map" {
						b.Settle(i, "out", whims[it.Payload.Do].end())
					}
				}
				panic("boom")
			})
			p.MaxBatch, p.MaxWait = rapid.IntRange(1, 50).Draw(t, "max batch"), time.Microsecond
		}
		p.Concurrency = rapid.IntRange(1, 8).Draw(t, "concurrency")
		whats := rapid.SliceOfN(rapid.SampledFrom(names), 1, 300).Draw(t, "items")
		l := serve(t, p, &wire.ConfigureRequest{})
		for i, what := range whats {
			payload := do(what)
			if what == "wrong payload" {
				payload = `{"dos":1}`
			}
			l.send(item(int64(i), payload))
		}
		must.OK(t, l.close())
		if len(l.results) != len(whats) {
			t.Fatalf("%d results of %d items", len(l.results), len(whats))
		}
		for i, what := range whats {
			r := l.results[int64(i)]
			want := &wire.Result{Id: int64(i), Attempt: 1, LockId: fmt.Appendf(nil, "lock%d", i),
				Outcome: wire.Result_OUTCOME_FAILED, Code: "payload", Final: true}
			if w, ok := whims[what]; ok {
				want.Outcome, want.Code, want.Final = w.outcome, w.code, false
			}
			ignore := protocmp.IgnoreFields(&wire.Result{}, "error", "output", "log", "ending", "delay_ms")
			if diff := cmp.Diff(want, r, protocmp.Transform(), ignore); diff != "" {
				t.Fatalf("%s: %s", what, diff)
			}
		}
	})
}

func TestPanic(t *testing.T) {
	p := New("p", "0.1.0", whimsical)
	l := serve(t, p, &wire.ConfigureRequest{})
	l.send(item(1, do("nil map")), item(2, do("goexit")))
	l.until(2)
	r := l.results[1]
	if r.Ending != wire.Result_ENDING_PANICKED || !strings.Contains(r.Error, "nil map") ||
		!strings.Contains(r.Log, "sdk.init.func") {
		t.Error(r)
	}
	if r = l.results[2]; r.Ending != wire.Result_ENDING_PANICKED || !strings.Contains(r.Error, "ended its goroutine") {
		t.Error(r)
	}
	must.OK(t, l.close())
}

func TestOutput(t *testing.T) {
	type out struct {
		N int `json:"n"`
		F any `json:"f,omitempty"`
	}
	p := New("p", "0.1.0", func(_ context.Context, _ *struct{}, it Item[task1]) (*out, error) {
		switch it.Payload.Do {
		case "value":
			return &out{N: 1}, nil
		case "value and error":
			return &out{N: 2}, errBoom
		case "zero and error":
			return nil, errBoom
		case "not JSON":
			return &out{F: func() {}}, nil
		case "not JSON and error":
			return &out{F: func() {}}, errBoom
		case "large and error":
			return &out{F: strings.Repeat("x", wire.MaxOutput)}, errBoom
		case "not UTF-8":
			return &out{F: json.RawMessage("\"\xff\"")}, nil
		case "large":
			return &out{F: strings.Repeat("x", wire.MaxOutput)}, nil
		default:
			return nil, nil
		}
	})
	l := serve(t, p, &wire.ConfigureRequest{})
	whats := []string{"value", "value and error", "zero and error", "not JSON", "not UTF-8", "large", "nothing",
		"not JSON and error", "large and error"}
	for i, what := range whats {
		l.send(item(int64(i), do(what)))
	}
	l.until(len(whats))
	want := []string{`{"n":1} `, `{"n":2} boom`, " boom", " the result cannot be written as JSON", " output is not UTF-8",
		" result too large: output has", " ", " boom", " boom"}
	for i, what := range whats {
		if r := l.results[int64(i)]; !strings.HasPrefix(string(r.Output)+" "+r.Error, want[i]) ||
			(i >= 3 && i <= 5) != (r.Code == "output" && r.Final) {
			t.Errorf("%s: %v", what, r)
		}
	}
	must.OK(t, l.close())
}

// TestTimeoutText: the timeout is described in words, also where the function has added some.
func TestTimeoutText(t *testing.T) {
	p := New("p", "0.1.0", func(ctx context.Context, _ *struct{}, it Item[task1]) (string, error) {
		<-ctx.Done()
		return "", fmt.Errorf("%s%w", it.Payload.Do, ctx.Err())
	})
	l := serve(t, p, &wire.ConfigureRequest{})
	for id, before := range []string{"", "at line 3: ", "context deadline exceeded: last words, "} {
		it := item(int64(id), do(before))
		it.Kind = "conv"
		it.TimeoutMs = 20
		l.send(it)
		l.until(id + 1)
		if r, want := l.results[int64(id)], strings.ReplaceAll(before+"context deadline exceeded",
			"context deadline exceeded", "timed out after 20ms (timeout of kind conv)"); r.Error != want || r.Code != "timeout" {
			t.Errorf("%v, want %q", r, want)
		}
	}
	must.OK(t, l.close())
}

func TestEmit(t *testing.T) {
	due := time.Date(2026, 11, 20, 0, 0, 0, 5000, time.UTC)
	var errs []error
	p := New("p", "0.1.0", func(_ context.Context, _ *struct{}, it Item[task1]) (string, error) {
		for _, c := range []Child{
			{Kind: "article", Key: "a", Payload: map[string]int{"n": 1}, Due: due, Priority: -1, Fingerprint: "f"},
			{Kind: "article", Key: "b", Scope: "all"},
			{Kind: "exec", Key: "c"},
			{Kind: "article"},
			{Kind: "article", Key: strings.Repeat("k", wire.MaxKey+1)},
			{Kind: "article", Key: "d", Scope: strings.Repeat("k", wire.MaxScope+1)},
			{Kind: "article", Key: "e", Priority: 3},
			{Kind: "article", Key: "f\x00"},
			{Kind: "article", Key: "g\xff"},
			{Kind: "article", Key: "h", Payload: make(chan int)},
			{Kind: "article", Key: "i", Payload: strings.Repeat("x", wire.MaxPayload)},
		} {
			errs = append(errs, it.Emit(c))
		}
		if it.Payload.Do == "fail" {
			return "", errBoom
		}
		return "", nil
	})
	p.Emits = []string{"article"}
	l := serve(t, p, &wire.ConfigureRequest{})
	l.send(item(1, do("")))
	l.until(1)
	for i, err := range errs {
		if (err == nil) != (i < 2) {
			t.Errorf("child %d: %v", i, err)
		}
		got, end := new(wire.Result), wire.Result_OUTCOME_FAILED
		judge(got, t.Context(), err)
		if err != nil && (got.Outcome != end || !got.Final || got.Code != "emit_refused") {
			t.Errorf("child %d: what is refused now is refused for good: %v", i, got)
		}
	}
	want := []*wire.Child{
		{Kind: "article", Scope: "p/1", Key: "a", Payload: []byte(`{"n":1}`), DueUs: due.UnixMicro(), Priority: -1,
			Fingerprint: "f"},
		{Kind: "article", Scope: "all", Key: "b"},
	}
	if diff := cmp.Diff(want, l.results[1].Emit, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	l.send(item(2, do("fail")))
	l.until(2)
	if n := len(l.results[2].Emit); n > 0 {
		t.Errorf("a failed attempt emits %d items", n)
	}
	must.OK(t, l.close())
}

// permitting is a config that permits kinds to emit.
type permitting struct {
	Kinds []string `json:"kinds"`
}

func (c *permitting) Emits() []string { return append([]string{c.Kinds[0]}, c.Kinds[1:]...) }

// A config permits kinds. Its method is not called when a config is only validated, and a panic in it is a problem.
func TestConfigEmits(t *testing.T) {
	p := New("p", "0.1.0", func(_ context.Context, _ *permitting, it Item[task1]) (string, error) {
		return "", it.Emit(Child{Kind: it.Payload.Do, Key: "k"})
	})
	for _, validate := range []bool{true, false} {
		res, err := (&server{plugin: p}).Configure(t.Context(), &wire.ConfigureRequest{Config: []byte(`{"kinds":[]}`),
			ValidateOnly: validate})
		if err != nil || len(res.Emits) > 0 || validate != (len(res.Problems) == 0) {
			t.Errorf("validate only %v: %v, %v", validate, res, err)
		}
	}
	l := serve(t, p, &wire.ConfigureRequest{Config: []byte(`{"kinds":["article"]}`)})
	l.send(item(1, do("article")), item(2, do("page")))
	l.until(2)
	if len(l.results[1].Emit) != 1 || len(l.results[2].Emit) != 0 {
		t.Errorf("%v, %v", l.results[1], l.results[2])
	}
	must.OK(t, l.close())
}

func TestEmitLimits(t *testing.T) {
	var emitted int
	var last Item[task1]
	p := New("p", "0.1.0", func(_ context.Context, _ *struct{}, it Item[task1]) (string, error) {
		last = it
		c := Child{Kind: "article", Key: "k"}
		if it.Payload.Do == "large" {
			c.Payload = strings.Repeat("x", 100<<10)
		}
		for emitted = 0; it.Emit(c) == nil; emitted++ {
		}
		return "", nil
	})
	p.Emits = []string{"article"}
	l := serve(t, p, &wire.ConfigureRequest{})
	l.send(item(1, do("small")))
	l.until(1)
	if emitted != wire.MaxEmit || len(l.results[1].Emit) != wire.MaxEmit {
		t.Error(emitted, len(l.results[1].Emit))
	}
	if err := last.Emit(Child{Kind: "article", Key: "late"}); err == nil {
		t.Error("an attempt that has ended emits")
	}
	l.send(item(2, do("large")))
	l.until(2)
	if size := proto.Size(l.results[2]); size > wire.MaxEmitBytes || size < wire.MaxEmitBytes-200<<10 {
		t.Errorf("%d bytes", size)
	}
	must.OK(t, l.close())
}

func TestLog(t *testing.T) {
	p := New("p", "0.1.0", func(_ context.Context, _ *struct{}, it Item[task1]) (string, error) {
		it.Log.With("a", 1).WithGroup("g").Debug("first", "b", 2)
		if it.Payload.Do == "long" {
			it.task.tail().Write([]byte(strings.Repeat("ä", wire.MaxLog) + strings.Repeat("y", 99) + " end\n"))
		}
		if it.Payload.Do == "much" {
			for i := range 2000 {
				it.Log.Info("line", "i", i, "nul", "\x00")
			}
			it.Log.Info(strings.Repeat("y", 3*wire.MaxLog))
			for i := range 100 {
				it.Log.Info("last", "i", i)
			}
		}
		return "", nil
	})
	l := serve(t, p, &wire.ConfigureRequest{})
	l.send(item(1, do("")), item(2, do("much")), item(3, do("long")))
	l.until(3)
	if log := l.results[3].Log; len(log) > wire.MaxLog || !strings.HasSuffix(log, "yyy end\n") {
		t.Errorf("%d bytes, of a long line at the end: %.100q", len(log), log)
	}
	if log := l.results[1].Log; !strings.HasSuffix(log, "level=DEBUG msg=first a=1 g.b=2\n") {
		t.Errorf("%q", log)
	}
	log := l.results[2].Log
	if len(log) > wire.MaxLog || !strings.HasSuffix(log, "msg=last i=99\n") || !strings.HasPrefix(log, "time=") {
		t.Errorf("%d bytes: %.100q … %q", len(log), log, log[max(0, len(log)-100):])
	}
	must.OK(t, l.close())
}

// Results that are large together go in several messages.
func TestManyLargeResults(t *testing.T) {
	p := New("p", "0.1.0", func(_ context.Context, _ *struct{}, it Item[task1]) (string, error) {
		return strings.Repeat("x", 900<<10), nil
	})
	const n = 20 // more than one message may have
	p.Concurrency = n
	l := serve(t, p, &wire.ConfigureRequest{})
	for i := range n {
		l.send(item(int64(i), `{}`))
	}
	l.until(n)
	if l.largest > wire.MaxMessage/2 {
		t.Errorf("a message has %d bytes", l.largest)
	}
	must.OK(t, l.close())
}

func TestProgress(t *testing.T) {
	report := func(_ context.Context, _ *struct{}, it Item[task1]) (string, error) {
		for i := range 30 {
			it.Progress(int64(i), 30, "rows")
			time.Sleep(90 * time.Millisecond)
		}
		return "", nil
	}
	tests := []struct {
		ms   int64
		want []int64
	}{
		// At once, then the newest one of each second.
		{0, []int64{0, 11, 22}},
		{500, []int64{0, 5, 11, 16, 22, 27}},
		{-1, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
			29}},
	}
	for _, test := range tests {
		synctest.Test(t, func(t *testing.T) {
			l := serve(t, New("p", "0.1.0", report), &wire.ConfigureRequest{ProgressMs: test.ms})
			l.send(item(1, `{}`))
			l.until(1)
			var got []int64
			for _, r := range l.reports {
				if r.Id != 1 || r.Total != 30 || r.Unit != "rows" {
					t.Error(r)
				}
				got = append(got, r.Done)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("every %d ms: %s", test.ms, diff)
			}
			if err := l.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// No more than the concurrency is in work, and the credits grow with cheap items only.
func TestConcurrencyAndCredits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		p := New("p", "0.1.0", func(_ context.Context, _ *struct{}, it Item[task1]) (string, error) {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			d, err := time.ParseDuration(it.Payload.Do)
			time.Sleep(d)
			return "", err
		})
		l := serve(t, p, &wire.ConfigureRequest{Concurrency: 3})
		l.take(<-l.pipe.out)
		if l.credits != 6 {
			t.Errorf("%d credits at first, want twice the concurrency", l.credits)
		}
		for i := range int64(30) {
			l.send(item(i, do("1s")))
		}
		l.until(30)
		synctest.Wait()
		if most.Load() != 3 {
			t.Errorf("%d at a time", most.Load())
		}
		if l.credits > 6 {
			t.Errorf("%d credits for items of a second", l.credits)
		}
		for i := range int64(200) {
			l.send(item(100+i, do("1us")))
		}
		l.until(230)
		for l.credits < 500 {
			l.send(item(1000+int64(len(l.results)), do("1us")))
			l.take(<-l.pipe.out)
		}
		must.OK(t, l.close())
	})
}

// Items that come together are begun together, as far as the concurrency allows, with idle workers and with busy ones.
func TestBegunTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New("p", "0.1.0", func(context.Context, *struct{}, Item[task1]) (string, error) {
			time.Sleep(time.Second)
			return "", nil
		})
		const places = 50
		l := serve(t, p, &wire.ConfigureRequest{Concurrency: places})
		items := make([]*wire.Item, 4*places)
		for i := range items {
			items[i] = item(int64(i), do("it"))
		}
		for _, n := range []int{places, 3 * places} {
			began, had := time.Now(), len(l.results)
			l.send(items[:n]...)
			l.until(had + n)
			if took, want := time.Since(began), time.Duration(n/places)*time.Second; took > want+time.Second/2 {
				t.Errorf("%d items took %s, want %s", n, took, want)
			}
			items = items[n:]
		}
		must.OK(t, l.close())
	})
}

// With OnLostDoubt no item waits in the queue.
func TestCreditsInDoubt(t *testing.T) {
	p := New("p", "0.1.0", whimsical)
	p.OnLost = OnLostDoubt
	l := serve(t, p, &wire.ConfigureRequest{Concurrency: 3})
	for i := range int64(100) {
		l.send(item(i, do("done")))
		if l.credits > 3 {
			t.Fatalf("%d credits", l.credits)
		}
	}
	must.OK(t, l.close())
}

func TestConnectionLost(t *testing.T) {
	begun, causes := make(chan bool), make(chan error, 1)
	p := New("p", "0.1.0", func(ctx context.Context, _ *struct{}, _ Item[task1]) (string, error) {
		begun <- true
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return "", nil
	})
	l := serve(t, p, &wire.ConfigureRequest{})
	l.send(item(1, `{}`))
	<-begun
	l.cancel()
	if err := <-l.served; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if cause := <-causes; !errors.Is(cause, ErrStopping) {
		t.Error(cause)
	}
}
