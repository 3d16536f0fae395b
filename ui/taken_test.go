package ui

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/lending"
	"github.com/ledgerd/ledgerd/internal/report"
)

// A decision that is being sent cannot be undone, and a refusal stays until it was on a page.
func TestDecisionLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := desktop{"token", "ann"}
		d := desks{all: map[desktop]*taken{who: {}}}
		answered := make(chan struct{})
		d.hold(who, sending{Item: 1, Key: "a", Word: "done"}, func() error {
			<-answered
			return errors.New("its lease is lost")
		})
		time.Sleep(deskHold)
		synctest.Wait()
		d.mu.Lock()
		if d.all[who].drop(1) {
			t.Error("it is undone, and sent")
		}
		d.mu.Unlock()
		close(answered)
		synctest.Wait()
		d.calm(who)
		d.add(desktop{"token", "bob"})
		if mine := d.all[who]; mine == nil || len(mine.trouble) != 1 || len(mine.sending) != 0 {
			t.Fatalf("%+v", mine)
		}
		d.show(who, 1)
		if d.calm(who); len(d.all[who].trouble) != 0 {
			t.Errorf("%q", d.all[who].trouble)
		}
	})
}

// TestLedgerAway: a decision is sent again while the ledger cannot be reached and the lease lasts. A lease stays until
// its end is recorded, or it is lost.
func TestLedgerAway(t *testing.T) {
	away := &apiError{Status: http.StatusServiceUnavailable, Code: "unavailable", Detail: "the ledger cannot be reached"}
	for _, c := range []struct {
		err             error // after the ledger was away
		after           time.Duration
		trouble, leases int
	}{{nil, time.Minute, 0, 0}, {away, time.Hour, 1, 1}, {&apiError{Status: 409, Code: "lease_lost"}, time.Minute, 1, 0},
		{&apiError{Status: 422, Code: "invalid"}, time.Minute, 1, 1}} {
		synctest.Test(t, func(t *testing.T) {
			who := desktop{"token", "ann"}
			d := desks{all: map[desktop]*taken{}}
			d.add(who, lending.Lent{ID: 1})
			tries := 0
			d.hold(who, sending{Item: 1, Key: "a", Word: "done"}, func() error {
				if tries++; tries < 3 {
					return away
				}
				return c.err
			})
			time.Sleep(deskHold + time.Second)
			d.mu.Lock()
			mine := d.all[who]
			if len(mine.sending) != 1 || !mine.sending[0].Leaving || mine.drop(1) {
				t.Errorf("%v: after the first try: %+v", c.err, mine)
			}
			d.mu.Unlock()
			time.Sleep(c.after)
			synctest.Wait()
			if len(mine.sending) != 0 || len(mine.trouble) != c.trouble || len(mine.leases) != c.leases || tries < 3 {
				t.Errorf("%v: after %d tries: %+v", c.err, tries, mine)
			}
		})
	}
}

// TestUndoes: the key u undoes no act of another user, and none that has begun.
func TestUndoes(t *testing.T) {
	at := func(s int) report.Time { return report.Time(time.Unix(int64(s), 0)) }
	held := []answer.BulkAct{{ID: "mine", By: "me", State: "held", Begins: at(1)},
		{ID: "other", By: "you", State: "held", Begins: at(9)}, {ID: "begun", By: "me", State: "running", Begins: at(9)}}
	decided := deskData{Sending: []sending{{Item: 7, At: at(2)}, {Item: 8, At: at(9), Leaving: true}}}
	for want, data := range map[string]any{"mine": nil, "7": decided} {
		if got := undoes(held, "me", data); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestDeskAgent: persons whose tokens have the same prefix have desks of their own.
func TestDeskAgent(t *testing.T) {
	for want, me := range map[string]answer.Me{"ann": {Name: "ann"}, "desk-ann": {Name: "ann", Agent: "desk-"},
		"desk-bob": {Name: "desk-bob", Agent: "desk-"}} {
		if got := deskAgent(me); got != want {
			t.Errorf("the desk of %s is %s, not %s", me.Name, got, want)
		}
	}
}
