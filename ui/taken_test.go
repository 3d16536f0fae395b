package ui

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
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
		d.add(desktop{"token", "bob"}, nil)
		if mine := d.all[who]; mine == nil || len(mine.trouble) != 1 || len(mine.sending) != 0 {
			t.Fatalf("%+v", mine)
		}
		d.show(who, 1)
		if d.calm(who); len(d.all[who].trouble) != 0 {
			t.Errorf("%q", d.all[who].trouble)
		}
	})
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
