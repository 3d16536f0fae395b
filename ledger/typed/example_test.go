package typed_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/typed"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

var ctx = context.Background()

func inMemory() *ledger.Ledger { return ledger.New(memory.New(memory.Options{}), ledger.Options{}) }

// drain works all due items with one handler.
func drain(l *ledger.Ledger, kind string, h worker.Handler) {
	quiet := slog.New(slog.DiscardHandler)
	w, err := worker.New(worker.Config{Ledger: l, Handlers: map[string]worker.Handler{kind: h}, Concurrency: 1,
		Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := w.Drain(ctx, 0); err != nil {
		log.Fatal(err)
	}
}

// A kind is declared once; values are added, and the handler gets them back.
func Example() {
	type Resize struct {
		Path  string `json:"path"`
		Width int    `json:"width"`
	}
	resize := typed.Kind[Resize]{Name: "resize", Key: func(r Resize) string { return r.Path }}
	l := inMemory()
	added, err := resize.Add(ctx, l, Resize{"/photos/tram.jpg", 800})
	fmt.Println(added.Verdict, err)
	drain(l, resize.Name, resize.Handler(func(_ context.Context, r Resize) error {
		fmt.Println("resize", r.Path, "to", r.Width)
		return nil
	}))
	// Output:
	// added <nil>
	// resize /photos/tram.jpg to 800
}

// A known key with another payload is an error, unless Differs of the kind is another.
func ExampleKind_Add() {
	type Invoice struct{ No, Cents int }
	invoice := typed.Kind[Invoice]{Name: "invoice", Key: func(i Invoice) string { return fmt.Sprint(i.No) }}
	l := inMemory()
	for _, i := range []Invoice{{7, 100}, {7, 100}, {7, 999}} {
		added, err := invoice.Add(ctx, l, i)
		fmt.Println(added.Verdict, errors.Is(err, ledger.ErrConflict))
	}
	// Output:
	// added false
	// known false
	// differs true
}

// A transaction that is rolled back leaves no item.
func ExampleKind_AddTx() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "app.db")
	store, err := sqlite.Open(ctx, file, sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	l := ledger.New(store, ledger.Options{})
	defer l.Close()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	greet := typed.Kind[string]{Name: "greet", Key: func(s string) string { return s }}
	for _, name := range []string{"ada", "ben"} {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := greet.AddTx(ctx, l, sqlite.Wrap(tx), name); err != nil {
			log.Fatal(err)
		}
		if name == "ada" {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		if err != nil {
			log.Fatal(err)
		}
		_, err = l.Find(ctx, "greet", "", name)
		fmt.Println(name, err == nil)
	}
	// Output:
	// ada true
	// ben false
}

// Without a Key, equal values are one item.
func ExampleKind_AddMany() {
	k := typed.Kind[int]{Name: "number"}
	added, err := k.AddMany(ctx, inMemory(), []int{1, 2, 1})
	for _, a := range added {
		fmt.Println(a.Verdict)
	}
	fmt.Println(err)
	// Output:
	// added
	// added
	// known
	// <nil>
}

// A button that may be pressed again once the work is done.
func ExampleOnce_whileOpen() {
	export := typed.Kind[string]{Name: "export", Once: typed.WhileOpen}
	l := inMemory()
	press := func() {
		added, err := export.Add(ctx, l, "ada")
		fmt.Println(added.Verdict, err)
	}
	press()
	press()
	drain(l, "export", export.Handler(func(context.Context, string) error { return nil }))
	press()
	// Output:
	// added <nil>
	// known <nil>
	// reopened <nil>
}

// One digest a day for each user; the day is that of the zone.
func ExamplePerPeriod() {
	digest := typed.Kind[string]{Name: "digest", Once: typed.PerPeriod("day", "Europe/Berlin"),
		Key: func(user string) string { return user }}
	for _, hour := range []int{22, 23} {
		n, err := digest.Item(time.Date(2026, 11, 20, hour, 30, 0, 0, time.UTC), "ada")
		fmt.Println(n.Scope, n.Key, err)
	}
	// Output:
	// 2026-11-20 ada <nil>
	// 2026-11-21 ada <nil>
}

// The result of a handler is kept as the output of the attempt.
func ExampleReturning() {
	length := typed.Kind[string]{Name: "length"}
	l := inMemory()
	added, err := length.Add(ctx, l, "tram")
	if err != nil {
		log.Fatal(err)
	}
	drain(l, "length", typed.Returning(length, func(_ context.Context, s string) (int, error) { return len(s), nil }))
	output, err := l.LastOutput(ctx, added.ID)
	fmt.Println(string(output), err)
	// Output: 4 <nil>
}

// Errors decide how the attempt ends, also below further wrapping.
func ExamplePermanent() {
	k := typed.Kind[string]{Name: "fetch", Key: func(s string) string { return s }}
	l := inMemory()
	added, err := k.Add(ctx, l, "https://example.com/")
	if err != nil {
		log.Fatal(err)
	}
	drain(l, "fetch", k.Handler(func(context.Context, string) error {
		return fmt.Errorf("fetch: %w", typed.Code("http_404", typed.Permanent(errors.New("not found"))))
	}))
	it, err := l.Get(ctx, added.ID)
	fmt.Println(it.State, it.Code, it.Error, err)
	// Output: dead http_404 fetch: not found <nil>
}

// A snooze is no failure.
func ExampleSnooze() {
	k := typed.Kind[string]{Name: "poll"}
	l := inMemory()
	added, err := k.Add(ctx, l, "x")
	if err != nil {
		log.Fatal(err)
	}
	drain(l, "poll", k.Handler(func(context.Context, string) error { return typed.Snooze(time.Hour, "not yet") }))
	it, err := l.Get(ctx, added.ID)
	fmt.Println(it.State, it.Failures, err)
	// Output: waiting 0 <nil>
}

// A middleware runs around a handler and has the item.
func ExampleMiddleware() {
	announce := func(next worker.Func) worker.Func {
		return func(ctx context.Context, lease *ledger.Lease) ledger.Result {
			res := next(ctx, lease)
			fmt.Println("item", lease.Key, "attempt", lease.Attempt, res.Outcome)
			return res
		}
	}
	k := typed.Kind[string]{Name: "greet", Key: func(s string) string { return s }}
	l := inMemory()
	if _, err := k.Add(ctx, l, "ada"); err != nil {
		log.Fatal(err)
	}
	drain(l, "greet", k.Handler(func(context.Context, string) error { return nil }, announce))
	// Output: item ada attempt 1 done
}

// Children are there if and only if the item is done.
func ExampleEmit() {
	feed, entry := typed.Kind[string]{Name: "feed"}, typed.Kind[int]{Name: "entry"}
	l := inMemory()
	if _, err := feed.Add(ctx, l, "news"); err != nil {
		log.Fatal(err)
	}
	drain(l, "feed", feed.Handler(func(ctx context.Context, _ string) error { return typed.Emit(ctx, entry, 1, 2, 3) }))
	n, err := l.Count(ctx, ledger.Filter{Kinds: []string{"entry"}})
	fmt.Println(n, err)
	// Output: 3 <nil>
}
