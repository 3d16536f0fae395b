package sdk

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// odd has methods that panic.
type odd string

func (o odd) MarshalJSON() ([]byte, error) {
	if o == "output" {
		panic("MarshalJSON")
	}
	return []byte(`"fine"`), nil
}

func (o *odd) UnmarshalJSON(raw []byte) error {
	if *o = odd(strings.Trim(string(raw), `"`)); *o == "payload" {
		panic("UnmarshalJSON")
	}
	return nil
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// loggingError logs when errors.As looks at it.
type loggingError struct{ log *slog.Logger }

func (loggingError) Error() string { return "" }

func (e loggingError) As(any) bool {
	e.log.Info("looked at")
	return false
}

// oddErr is a nil pointer in an error, as functions return it that return a pointer of its type.
func oddErr(o odd) error {
	if o == "error" || o == "wrapped" {
		return (*nilError)(nil)
	}
	return nil
}

// A panic in a method that the SDK calls around the function is a panic of that item, and of no other.
func TestPanicInMethods(t *testing.T) {
	type payload struct {
		Do odd `json:"do"`
	}
	work := func(it Item[payload]) (odd, error) {
		if it.Payload.Do == "wrapped" {
			return it.Payload.Do, Permanent(oddErr(it.Payload.Do))
		}
		if it.Payload.Do == "logs" {
			return it.Payload.Do, loggingError{it.Log}
		}
		return it.Payload.Do, oddErr(it.Payload.Do)
	}
	one := New("p", "0.1.0", func(_ context.Context, _ *struct{}, it Item[payload]) (odd, error) { return work(it) })
	many := NewBatch("p", "0.1.0", func(_ context.Context, _ *struct{}, b *Batch[payload, odd]) error {
		for i, it := range b.Items {
			out, err := work(it)
			b.Settle(i, out, err)
		}
		return nil
	})
	whats := []string{"payload", "output", "error", "wrapped", "logs", "neighbour"}
	for name, p := range map[string]*Plugin{"one by one": one, "batches": many} {
		l := serve(t, p, &wire.ConfigureRequest{})
		for i, what := range whats {
			l.send(item(int64(i), do(what)))
		}
		l.until(len(whats))
		for i, what := range whats {
			r := l.results[int64(i)]
			if what == "logs" {
				if r.Outcome != wire.Result_OUTCOME_FAILED || !strings.Contains(r.Log, "looked at") {
					t.Errorf("%s: %v", name, r)
				}
			} else if what == "neighbour" {
				if r.Outcome != wire.Result_OUTCOME_DONE {
					t.Errorf("%s, %s: %v", name, what, r)
				}
			} else if r.Code != "panic" || r.Ending != wire.Result_ENDING_PANICKED || r.Final ||
				!strings.Contains(r.Log, "goroutine") {
				t.Errorf("%s, %s: %v", name, what, r)
			}
		}
		must.OK(t, l.close())
	}
}

// oddConfig is a config whose methods panic, or return a nil pointer as an error.
type oddConfig struct {
	Do odd `json:"do"`
}

func (c *oddConfig) Validate() error { return oddErr(c.Do) }
func (c *oddConfig) Close() error    { oddClosed++; return errBoom }
func (c *oddConfig) Emits() []string {
	if c.Do == "emits" {
		panic("Emits")
	}
	return nil
}

var oddClosed int // calls of Close

func TestPanicInConfig(t *testing.T) {
	p := New("p", "0.1.0", func(context.Context, *oddConfig, Item[task1]) (string, error) { return "", nil })
	for what, want := range map[string]string{"payload": "panic in UnmarshalJSON", "error": "panic in Validate",
		"emits": "panic in Emits", "fine": ""} {
		before := oddClosed
		res, err := newServer(p).Configure(t.Context(), &wire.ConfigureRequest{Config: []byte(do(what))})
		got := wire.ProblemText(res.GetProblems())
		if err != nil || !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: %q, %v", what, got, err)
		}
		if closed := oddClosed > before; closed != (what == "emits") {
			t.Errorf("%s: closed %v; a config is closed if and only if it was opened and is not used", what, closed)
		}
	}
}

// The error of Close is still there after a Drain, when the process exits and prints it.
func TestCloseError(t *testing.T) {
	s := newServer(New("p", "0.1.0", func(context.Context, *oddConfig, Item[task1]) (string, error) { return "", nil }))
	_, err := s.Configure(t.Context(), &wire.ConfigureRequest{})
	must.OK(t, err)
	_, err = s.Drain(t.Context(), &wire.DrainRequest{})
	must.OK(t, err)
	if _, err := s.CheckHealth(t.Context(), &wire.CheckHealthRequest{}); err == nil {
		t.Error("a closed config was checked")
	}
	if err := s.close(); !errors.Is(err, errBoom) {
		t.Error(err)
	}
}

// New refuses tags that encoding/json or the host would understand in another way than the author.
func TestNewPanicsOtherwise(t *testing.T) {
	type none struct{}
	tests := []struct {
		want string
		make func()
	}{
		{"config: field hosts.token: secret is not for fields within a list or a map", func() {
			of[struct {
				Hosts []struct {
					Token string `json:"token" secret:"true"`
				} `json:"hosts"`
			}, none]()
		}},
		{"config: field by.in.token: secret is not for fields within a list or a map", func() {
			of[struct {
				By map[string]*struct {
					In struct {
						Token string `json:"token" secret:"true"`
					} `json:"in"`
				} `json:"by"`
			}, none]()
		}},
		{"config: field token: a secret has no default", func() {
			of[struct {
				Token string `json:"token" secret:"true" default:"x"`
			}, none]()
		}},
		{"payload: field a: INPUT fills the field, so it has no default", func() {
			of[none, struct {
				A string `json:"a" input:"line" default:"x"`
			}]()
		}},
		{"payload: field n: the option string of json", func() {
			of[none, struct {
				N int `json:"n,omitempty,string"`
			}]()
		}},
		{`payload: field d: schema rule "min=1": not for durations`, func() {
			of[none, struct {
				D time.Duration `json:"d" schema:"min=1"`
			}]()
		}},
		{`payload: field d: schema rule "max=9": not for durations`, func() {
			of[none, struct {
				D []time.Duration `json:"d" schema:"maxItems=3,max=9"`
			}]()
		}},
	}
	for _, test := range tests {
		panics(t, "sdk: plugin p: "+test.want, test.make)
	}
}
