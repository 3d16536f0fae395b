package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

var ctx = context.Background()

// exampleLedger makes a ledger in memory with these items.
func exampleLedger(items ...ledger.NewItem) *ledger.Ledger {
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	if _, err := l.Add(ctx, items...); err != nil {
		log.Fatal(err)
	}
	return l
}

// claim leases one item.
func claim(l *ledger.Ledger) *ledger.Lease {
	leases, err := l.Claim(ctx, ledger.Claim{Kind: "photo", Agent: "ann", Limit: 1})
	if err != nil || len(leases) != 1 {
		log.Fatal(leases, err)
	}
	return leases[0]
}

// An item is added, leased to an agent and ended.
func Example() {
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{}) // or sqlite.Open, postgres.Open
	added, err := l.Add(ctx, ledger.NewItem{Kind: "photo", Key: "tram.jpg"})
	fmt.Println(added[0].Verdict, err)
	leases, err := l.Claim(ctx, ledger.Claim{Kind: "photo", Agent: "ann", Limit: 10})
	fmt.Println(leases[0].Key, err)
	errs := l.Finish(ctx, ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)})
	it, err := l.Get(ctx, added[0].ID)
	fmt.Println(errs[0], it.State, err)
	// Output:
	// added <nil>
	// tram.jpg <nil>
	// <nil> done <nil>
}

// Adding an item twice is no error. If its fingerprint changed, it is worked again.
func ExampleLedger_Add() {
	l := exampleLedger(ledger.NewItem{Kind: "photo", Key: "tram.jpg", Fingerprint: "v1"})
	for _, version := range []string{"v1", "v2"} {
		added, err := l.Add(ctx, ledger.NewItem{Kind: "photo", Key: "tram.jpg", Fingerprint: version})
		fmt.Println(version, added[0].Verdict, err)
	}
	// Output:
	// v1 known <nil>
	// v2 changed <nil>
}

// Only the newest lease can end an item.
func ExampleLedger_Finish() {
	l := exampleLedger(ledger.NewItem{Kind: "photo", Key: "tram.jpg"})
	first := claim(l)
	if _, err := l.ForceRelease(ctx, "operator:ben", ledger.IDs(first.ID)); err != nil {
		log.Fatal(err)
	}
	second := claim(l)
	done := ledger.Done(nil)
	fmt.Println(errors.Is(l.Finish(ctx, ledger.Ending{Lease: first, Result: done})[0], ledger.ErrLeaseLost))
	fmt.Println(l.Finish(ctx, ledger.Ending{Lease: second, Result: done})[0])
	// Output:
	// true
	// <nil>
}

// The policy of a kind is kept in the ledger.
func ExampleLedger_EditKind() {
	l := exampleLedger(ledger.NewItem{Kind: "photo", Key: "tram.jpg"})
	k, err := l.EditKind(ctx, "operator:ben", "photo", func(k *ledger.Kind, known bool) {
		k.MaxFailures, k.Timeout = 1, time.Minute
	})
	fmt.Println(k.MaxFailures, k.Timeout, err)
	lease := claim(l)
	e := []ledger.Ending{{Lease: lease, Result: ledger.Fail(errors.New("broken"))}}
	fmt.Println(l.Finish(ctx, e...)[0], e[0].State)
	// Output:
	// 1 1m0s <nil>
	// <nil> dead
}

// Why explains the state of an item.
func ExampleLedger_Why() {
	l := exampleLedger(ledger.NewItem{Kind: "photo", Key: "tram.jpg"})
	reason, err := l.Why(ctx, claim(l).ID)
	fmt.Println(reason.State, reason.Code, err)
	// Output: leased leased <nil>
}

// Retry makes dead items ready again and resets their failures.
func ExampleLedger_Retry() {
	l := exampleLedger(ledger.NewItem{Kind: "photo", Key: "tram.jpg"})
	lease := claim(l)
	if err := l.Finish(ctx, ledger.Ending{Lease: lease, Result: ledger.Permanent(errors.New("no"))})[0]; err != nil {
		log.Fatal(err)
	}
	n, err := l.Retry(ctx, "operator:ben", ledger.Filter{States: []ledger.State{ledger.StateDead}})
	fmt.Println(n, err)
	// Output: 1 <nil>
}
