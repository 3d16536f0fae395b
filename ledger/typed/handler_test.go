package typed_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/typed"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

func TestErrors(t *testing.T) {
	base := errors.New("base")
	failed := ledger.Result{Outcome: ledger.OutcomeFailed, Error: "base"}
	with := func(r ledger.Result, set func(*ledger.Result)) ledger.Result { set(&r); return r }
	tests := map[string]struct {
		err  error
		want ledger.Result
	}{
		"nil":           {nil, ledger.Done(nil)},
		"an error":      {base, failed},
		"permanent":     {typed.Permanent(base), with(failed, func(r *ledger.Result) { r.Final = true })},
		"retry after":   {typed.RetryAfter(time.Hour, base), with(failed, func(r *ledger.Result) { r.Delay = time.Hour })},
		"doubt":         {typed.Doubt(base), ledger.Doubt(base)},
		"a past moment": {typed.RetryAfter(-time.Second, base), failed},
		"snooze, past":  {typed.Snooze(-1, "open"), ledger.Snooze(time.Second, "open")},
		"too late": {typed.RetryAfter(math.MaxInt64, base), with(failed, func(r *ledger.Result) {
			r.Delay = bounds.MaxDelay
		})},
		"other code": {typed.Code("HTTP-404 "+strings.Repeat("x", 99), base), with(failed, func(r *ledger.Result) {
			r.Code = "http_404_" + strings.Repeat("x", 55)
		})},
		"no code": {typed.Code("", base), with(failed, func(r *ledger.Result) { r.Code = "_" })},
		"snooze":  {typed.Snooze(time.Minute, "closed"), ledger.Snooze(time.Minute, "closed")},
		"skip":    {typed.Skip("gone"), ledger.Skip("gone")},
		"code":    {typed.Code("http_404", base), with(failed, func(r *ledger.Result) { r.Code = "http_404" })},
		"wrapped": {fmt.Errorf("send: %w", typed.Code("smtp", typed.Permanent(base))), with(failed, func(r *ledger.Result) {
			r.Final, r.Code, r.Error = true, "smtp", "send: base"
		})},
		"code inside": {typed.Permanent(typed.Code("c", base)), with(failed, func(r *ledger.Result) {
			r.Final, r.Code = true, "c"
		})},
		"the outermost": {typed.RetryAfter(time.Hour, typed.Permanent(base)), with(failed, func(r *ledger.Result) {
			r.Delay = time.Hour
		})},
		"one of joined": {errors.Join(base, typed.Permanent(errors.New("b"))), with(failed, func(r *ledger.Result) {
			r.Final, r.Error = true, "base\nb"
		})},
		"permanent of nil":    {typed.Permanent(nil), ledger.Done(nil)},
		"code of nil":         {typed.Code("c", nil), ledger.Done(nil)},
		"retry after, of nil": {typed.RetryAfter(time.Hour, nil), ledger.Done(nil)},
		"recorded":            {fmt.Errorf("%w", typed.ErrRecorded), worker.Recorded()},
	}
	k := typed.Kind[Mail]{Name: "mail"}
	for name, tt := range tests {
		h := k.Handler(func(context.Context, Mail) error { return tt.err })
		item := ledger.Item{Kind: "mail", Stored: ledger.Stored{Payload: []byte(`{}`)}}
		got := h(t.Context(), &ledger.Lease{Item: item})
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if tt.err != nil && !strings.Contains(tt.want.Error, "base") && tt.want.Outcome == ledger.OutcomeFailed {
			t.Errorf("%s: the text is lost", name)
		}
	}
	if !errors.Is(typed.Permanent(typed.Code("c", base)), base) {
		t.Error("the cause is lost")
	}
	fresh := func(next worker.Func) worker.Func { // a middleware may pass on another context
		return func(_ context.Context, lease *ledger.Lease) ledger.Result { return next(context.Background(), lease) }
	}
	h := k.Handler(func(context.Context, Mail) error { return nil }, fresh)
	got := h(t.Context(), &ledger.Lease{Item: ledger.Item{Kind: "mail", Stored: ledger.Stored{Payload: []byte(`{}`)}}})
	if diff := cmp.Diff(ledger.Done(nil), got); diff != "" {
		t.Errorf("with another context (-want +got):\n%s", diff)
	}
}

// The result of a handler is the output, also beside an error.
func TestReturning(t *testing.T) {
	l := ledgertest.Memory(t)
	k := typed.Kind[Mail]{Name: "mail", Key: to}
	must.Do(t)(k.AddMany(t.Context(), l.Ledger, []Mail{{To: "a"}, {To: "b"}}))
	ended := ledgertest.RunDue(t, l.Ledger, map[string]worker.Handler{k.Name: typed.Returning(k,
		func(_ context.Context, m Mail) (map[string]string, error) {
			if m.To == "b" {
				return map[string]string{"at": "b"}, typed.Skip("no")
			}
			return map[string]string{"sent": m.To}, nil
		})})
	if len(ended) != 2 || string(ended[0].Result.Output) != `{"sent":"a"}` || string(ended[1].Result.Output) != `{"at":"b"}` {
		t.Errorf("%+v", ended)
	}
	h := typed.Returning(k, func(context.Context, Mail) (func(), error) { return func() {}, nil })
	if got := h(t.Context(), ended[0].Lease); got.Code != "output" || !got.Final {
		t.Errorf("an output that is no JSON: %+v", got)
	}
}

func TestAroundTheHandler(t *testing.T) {
	l := ledgertest.Memory(t)
	k, child := typed.Kind[Mail]{Name: "mail", Key: to}, typed.Kind[int]{Name: "child"}
	must.Do(t)(k.AddMany(t.Context(), l.Ledger, []Mail{{To: "able"}, {To: "bad"}}))
	var steps []string
	step := func(name string) typed.Middleware {
		return func(next worker.Func) worker.Func {
			return func(ctx context.Context, lease *ledger.Lease) ledger.Result {
				steps = append(steps, name+" "+typed.Lease(ctx).Key)
				res := next(ctx, lease)
				steps = append(steps, name+" "+string(res.Outcome))
				return res
			}
		}
	}
	var log bytes.Buffer
	handlers := map[string]worker.Handler{k.Name: k.Handler(func(ctx context.Context, m Mail) error {
		typed.Logger(ctx).Info("in it")
		if err := typed.Emit(ctx, child, 1, 2); err != nil {
			t.Error(err)
		}
		nameless := typed.Kind[int]{Name: "child", Key: func(int) string { return "" }}
		if err := typed.Emit(ctx, nameless, 3); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("an item without a key: %v", err)
		}
		if m.To == "bad" { // it fails, so it adds nothing
			if err := typed.Emit(ctx, child, make([]int, bounds.MaxEmit)...); !errors.Is(err, ledger.ErrInvalid) {
				t.Errorf("too many items: %v", err)
			}
		}
		if m.To == "bad" {
			return typed.Permanent(typed.Code("c", errors.New("broken")))
		}
		return nil
	}, typed.Logging(slog.New(slog.NewTextHandler(&log, nil))), step("outer"), step("inner"))}
	ledgertest.RunDue(t, l.Ledger, handlers)
	want := []string{"outer able", "inner able", "inner done", "outer done", "outer bad", "inner bad", "inner failed",
		"outer failed"}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	for _, line := range []string{`msg="in it" kind=mail item=1 key=able attempt=1`,
		`level=INFO msg="attempt ended" kind=mail item=1 key=able attempt=1 outcome=done`,
		`level=WARN msg="attempt ended" kind=mail item=2 key=bad attempt=1 outcome=failed`, `code=c error=broken`} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("%s is missing in:\n%s", line, &log)
		}
	}
	// The children of the attempt that failed are not there.
	if n, err := l.Count(t.Context(), ledger.Filter{Kinds: []string{"child"}}); n != 2 || err != nil {
		t.Errorf("%d children, %v", n, err)
	}
	if it, err := l.Find(t.Context(), "child", "", "1"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a derived key is the value: %+v", it)
	}
	if err := typed.Emit(t.Context(), child, 3); !errors.Is(err, ledger.ErrInvalid) || typed.Lease(t.Context()) != nil {
		t.Errorf("outside of a handler: %v", err)
	}
}

// Items of a kind without Scope belong to the item that emits them, also if there is one for each period.
func TestEmitPerPeriod(t *testing.T) {
	l := ledgertest.Memory(t)
	parent := typed.Kind[string]{Name: "parent"}
	child := typed.Kind[string]{Name: "child", Once: typed.PerPeriod("week", "")}
	must.Do(t)(parent.Add(t.Context(), l.Ledger, "a"))
	must.Do(t)(parent.Add(t.Context(), l.Ledger, "b"))
	emit := parent.Handler(func(ctx context.Context, _ string) error { return typed.Emit(ctx, child, "same", "same") })
	ledgertest.RunDue(t, l.Ledger, map[string]worker.Handler{"parent": emit})
	var scopes []string
	for it, err := range l.List(t.Context(), ledger.Filter{Kinds: []string{"child"}}, 0) {
		must.OK(t, err)
		scope, _, _ := strings.Cut(it.Scope, "-W")
		scopes = append(scopes, scope[:len(scope)-len("2026")])
	}
	if diff := cmp.Diff([]string{"parent/1/", "parent/2/"}, scopes); diff != "" {
		t.Errorf("scopes, without their week (-want +got):\n%s", diff)
	}
}

// A panic is a failed attempt with the stack in its log, and passes through Logging; a payload of another type fails.
func TestPanicAndPayload(t *testing.T) {
	l := ledgertest.Memory(t)
	k := typed.Kind[Mail]{Name: "mail"}
	must.Do(t)(k.Add(t.Context(), l.Ledger, Mail{To: "a"}))
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "mail", Key: "text", Payload: []byte("no JSON")}))
	var log bytes.Buffer
	ended := ledgertest.RunDue(t, l.Ledger, map[string]worker.Handler{"mail": k.Handler(explode,
		typed.Logging(slog.New(slog.NewTextHandler(&log, nil))))})
	if len(ended) != 2 {
		t.Fatalf("%+v", ended)
	}
	if r := ended[0].Result; r.Code != "panic" || !strings.Contains(r.Log, "typed_test.explode") || !r.NoReport {
		t.Errorf("a panic: %+v", r)
	}
	if !strings.Contains(log.String(), `level=ERROR msg="the handler did not return" kind=mail item=1`) {
		t.Errorf("log:\n%s", &log)
	}
	if r := ended[1].Result; r.Code != "payload" || ended[1].State != ledger.StateWaiting {
		t.Errorf("a payload of another type: %+v, %s", r, ended[1].State)
	}
}

func explode(context.Context, Mail) error { panic("boom") }

// A handler under the name of another kind works nothing, and one without a function is refused.
func TestHandlerOfAnotherKind(t *testing.T) {
	l := ledgertest.Memory(t)
	k := typed.Kind[Mail]{Name: "mail"}
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "other", Key: "a", Payload: []byte(`{"x": 1}`)}))
	h := k.Handler(func(context.Context, Mail) error {
		t.Error("it is worked")
		return nil
	})
	ended := ledgertest.RunDue(t, l.Ledger, map[string]worker.Handler{"other": h})
	if len(ended) != 1 || ended[0].State != ledger.StateWaiting || ended[0].Result.Code != "kind" ||
		!strings.Contains(ended[0].Result.Error, "kind mail was given an item of kind other") {
		t.Errorf("%+v", ended)
	}
	for name, make := range map[string]func(){"Handler": func() { k.Handler(nil) },
		"Returning": func() { typed.Returning[Mail, int](k, nil) }} {
		func() {
			defer func() {
				if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "mail is nil") {
					t.Errorf("%s: %v", name, p)
				}
			}()
			make()
		}()
	}
}

// A handler ends its lease in its own transaction, together with what it writes.
func TestRecorded(t *testing.T) {
	l := ledgertest.File(t)
	must.Do(t)(l.DB.Exec(`CREATE TABLE sent (who TEXT)`))
	k := typed.Kind[Mail]{Name: "mail", Key: to}
	must.Do(t)(k.Add(t.Context(), l.Ledger, Mail{To: "a"}))
	ledgertest.RunDue(t, l.Ledger, map[string]worker.Handler{"mail": k.Handler(func(ctx context.Context, m Mail) error {
		return record(ctx, l, m)
	})})
	var n int
	if err := l.DB.QueryRow(`SELECT count(*) FROM sent`).Scan(&n); n != 1 || err != nil {
		t.Errorf("%d rows, %v", n, err)
	}
	if it, err := l.Find(t.Context(), "mail", "", "a"); it.State != ledger.StateDone || err != nil {
		t.Errorf("%s, %v", it.State, err)
	}
}

func record(ctx context.Context, l *ledgertest.Ledger, m Mail) error {
	tx, err := l.DB.BeginTx(ctx, &sql.TxOptions{})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `INSERT INTO sent VALUES (?)`, m.To); err != nil {
		return err
	}
	err = l.FinishTx(ctx, sqlite.Wrap(tx), ledger.Ending{Lease: typed.Lease(ctx), Result: ledger.Done(nil)})
	if err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return typed.ErrRecorded
}
