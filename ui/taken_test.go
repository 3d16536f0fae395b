package ui

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
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
