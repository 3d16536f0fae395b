package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// Drain works all items that are due, and returns a report.
func ExampleWorker_Drain() {
	ctx := context.Background()
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	if _, err := l.Add(ctx, ledger.NewItem{Kind: "photo", Key: "tram.jpg"}, ledger.NewItem{Kind: "photo", Key: "cat.jpg"},
		ledger.NewItem{Kind: "photo", Key: "broken.jpg"}); err != nil {
		log.Fatal(err)
	}
	w, err := worker.New(worker.Config{Ledger: l, Logger: slog.New(slog.DiscardHandler),
		Handlers: map[string]worker.Handler{"photo": worker.Func(func(_ context.Context, lease *ledger.Lease) ledger.Result {
			if lease.Key == "broken.jpg" {
				return ledger.Permanent(errors.New("no picture"))
			}
			return ledger.Done(nil)
		})}})
	if err != nil {
		log.Fatal(err)
	}
	report, err := w.Drain(ctx, 0)
	fmt.Println("done", report.Outcomes[ledger.OutcomeDone], "dead", report.Dead, err)
	// Output: done 2 dead 1 <nil>
}

// JSON decodes the payload.
func ExampleJSON() {
	type Photo struct{ Width int }
	h := worker.JSON(func(_ context.Context, lease *ledger.Lease, p Photo) ledger.Result {
		fmt.Println(lease.Key, p.Width)
		return ledger.Done(nil)
	})
	lease := &ledger.Lease{Item: ledger.Item{Key: "tram.jpg", Stored: ledger.Stored{Payload: []byte(`{"Width": 800}`)}}}
	fmt.Println(h(context.Background(), lease).Outcome)
	lease.Payload = []byte(`[]`)
	fmt.Println(h(context.Background(), lease).Code)
	// Output:
	// tram.jpg 800
	// done
	// payload
}

// Observe is called for every attempt of this worker.
func ExampleConfig() {
	ctx := context.Background()
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	if _, err := l.Add(ctx, ledger.NewItem{Kind: "photo", Key: "tram.jpg"}); err != nil {
		log.Fatal(err)
	}
	w, err := worker.New(worker.Config{Ledger: l, Logger: slog.New(slog.DiscardHandler),
		Handlers: map[string]worker.Handler{"photo": worker.Func(func(context.Context, *ledger.Lease) ledger.Result {
			return ledger.Skip("it is small already")
		})},
		Observe: func(e worker.Event) { fmt.Println(e.Lease.Key, e.Recorded, e.Result.Error) }})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := w.Drain(ctx, 0); err != nil {
		log.Fatal(err)
	}
	// Output: tram.jpg skipped it is small already
}
