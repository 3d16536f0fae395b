package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/lending"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

const (
	deskLease = 600              // seconds that a person has for an item
	deskHold  = 10 * time.Second // until a decision is sent
	deskMost  = 5                // items that a person takes at once
)

// desks are the items that people have taken, with decisions that are not sent yet. They are in memory. After a
// restart, people take their items again while these are still leased, and decisions that were not sent are lost.
type desks struct {
	mu      sync.Mutex
	all     map[desktop]*taken
	decided int // number of the newest decision
}

// desktop is the desk of one person: the API token, and the name under which items are claimed.
type desktop struct{ token, agent string }

type taken struct {
	leases  []lending.Lent
	sending []sending
	trouble []string // why decisions were refused
	shown   int      // as many of them were on a page
}

// sending is a decision that is held until it is sent.
type sending struct {
	Item int64
	Key  string
	Word string // the decision, as people read it
	At   report.Time

	ending  lending.Ending
	number  int // of the decision
	timer   *time.Timer
	leaving bool // it is being sent, so it cannot be undone
}

// of returns the items that a person holds and has not decided. It leaves out items whose lease is lost.
func (d *desks) of(v *view, agent string) (open []lending.Lent, held []sending, trouble []string, err error) {
	who := desktop{v.token, agent}
	d.mu.Lock()
	t := d.all[who]
	if t == nil {
		d.mu.Unlock()
		return nil, nil, nil, nil
	}
	leases := slices.Clone(t.leases)
	d.mu.Unlock()
	lost := map[string]bool{}
	if len(leases) > 0 {
		var tokens []string
		for _, l := range leases {
			tokens = append(tokens, l.Token)
		}
		answers, err := send[lending.LeaseAnswers](v, http.MethodPost, "/leases/held", nil,
			map[string][]string{"tokens": tokens})
		if len(leases) == 1 && err != nil && problemOf(err).Code == "lease_lost" {
			lost[leases[0].Token], err = true, nil
		}
		if err != nil {
			return nil, nil, nil, err
		}
		for _, a := range answers.Answers {
			lost[a.Token] = !a.Recorded && a.Reason == "lease_lost"
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t.leases = slices.DeleteFunc(t.leases, func(l lending.Lent) bool { return lost[l.Token] })
	for _, l := range t.leases {
		if !slices.ContainsFunc(t.sending, func(s sending) bool { return s.Item == l.ID }) {
			open = append(open, l)
		}
	}
	return open, slices.Clone(t.sending), slices.Clone(t.trouble), nil
}

// take claims the next items of a kind for the user. Items that the user holds already are among them.
func (s *site) take(v *view, who desktop) (string, error) {
	got, err := send[lending.Claimed](v, http.MethodPost, "/claims", nil, lending.Claim{Kind: v.PostFormValue("kind"),
		Agent: who.agent, Limit: deskMost, Lease: deskLease, Resume: true})
	if err != nil {
		return "", err
	}
	s.desks.add(who, got.Leases)
	if len(got.Leases) == 0 {
		return "/desk", nil
	}
	return "/desk?at=" + strconv.FormatInt(got.Leases[0].ID, 10), nil
}

// add keeps leases, and removes those that have expired.
func (d *desks) add(who desktop, leases []lending.Lent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for of, t := range d.all {
		t.leases = slices.DeleteFunc(t.leases, func(l lending.Lent) bool { return time.Time(l.Expires).Before(now) })
		if len(t.leases)+len(t.sending)+len(t.trouble) == 0 {
			delete(d.all, of)
		}
	}
	t := d.all[who]
	if t == nil {
		t = &taken{}
		d.all[who] = t
	}
	for _, l := range leases {
		t.leases = append(slices.DeleteFunc(t.leases, func(o lending.Lent) bool { return o.ID == l.ID }), l)
	}
}

// lease finds a lease of a person by the item.
func (d *desks) lease(who desktop, item string) (l lending.Lent, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.all[who]; t != nil {
		for _, l := range t.leases {
			if strconv.FormatInt(l.ID, 10) == item {
				return l, true
			}
		}
	}
	return l, false
}

// decide takes a person's decision on an item. The decision is sent after ten seconds, so that it can be undone. The
// lease is extended first, so that it lasts until then.
func (s *site) decide(v *view, who desktop) (string, error) {
	l, ok := s.desks.lease(who, v.PathValue("id"))
	if !ok {
		return "", &apiError{Status: http.StatusConflict, Title: "You do not hold this item",
			Detail: "its lease has ended, or the program was restarted", Hint: "take it again on the desk"}
	}
	back := local(v.PostFormValue("back"))
	do := v.PostFormValue("do")
	if do == "keep" {
		return back, s.keep(v, who, l)
	}
	e, word, err := endingOf(l.Token, do, v.PostFormValue("note"))
	if err == nil {
		err = s.keep(v, who, l)
	}
	if err != nil {
		return "", err
	}
	s.desks.hold(who, sending{Item: l.ID, Key: l.Key, Word: word, ending: e}, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(v.Context()), deskHold)
		defer cancel()
		later := &view{Request: v.WithContext(ctx), site: s, token: who.token}
		_, err := send[lending.LeaseAnswers](later, http.MethodPost, "/leases/finish", nil,
			map[string][]lending.Ending{"endings": {e}})
		return err
	})
	return back, nil
}

// keep extends a lease.
func (s *site) keep(v *view, who desktop, l lending.Lent) error {
	got, err := send[lending.LeaseAnswers](v, http.MethodPost, "/leases/renew", nil,
		lending.Renewal{Tokens: []string{l.Token}, Lease: deskLease})
	if err == nil && len(got.Answers) == 1 {
		l.Expires = got.Answers[0].Expires
		s.desks.add(who, []lending.Lent{l})
	}
	return err
}

// endingOf returns how a button of the desk ends an attempt, and the word that people read for it.
func endingOf(token, do, note string) (e lending.Ending, word string, err error) {
	e = lending.Ending{Token: token, Outcome: ledger.OutcomeDone, Worker: "desk"}
	result := map[string]string{}
	if note != "" {
		result["note"] = note
	}
	if verdict, ok := strings.CutPrefix(do, "verdict:"); ok {
		do, result["verdict"] = "done", verdict
		word = verdict
	}
	switch do {
	case "done":
		word = cmp.Or(word, "done")
	case "failed":
		e.Outcome, e.Error, e.Final, word = ledger.OutcomeFailed, note, true, "failed"
		return e, word, nil
	case "release":
		e.Outcome, word = ledger.OutcomeReleased, "handed back"
		return e, word, nil
	default:
		return e, "", &apiError{Status: http.StatusUnprocessableEntity, Title: "There is no such act", Detail: do}
	}
	if len(result) > 0 {
		e.Output, err = json.Marshal(result)
	}
	return e, word, err
}

// hold sends a decision after deskHold, unless it is undone.
func (d *desks) hold(who desktop, x sending, do func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.all[who]
	x.At = report.Time(time.Now().Add(deskHold))
	d.decided++
	number := d.decided
	x.number = number
	x.timer = time.AfterFunc(deskHold, func() {
		if !d.leaves(t, number) {
			return // it was undone as the time was over
		}
		err := do()
		d.mu.Lock()
		defer d.mu.Unlock()
		t.sending = slices.DeleteFunc(t.sending, func(s sending) bool { return s.number == number })
		if err != nil {
			t.trouble = append(t.trouble, x.Key+" was not recorded as "+x.Word+": "+problemOf(err).Detail)
		}
		t.leases = slices.DeleteFunc(t.leases, func(l lending.Lent) bool { return l.ID == x.Item })
	})
	t.drop(x.Item)
	t.sending = append(t.sending, x)
}

// show takes note that a page shows the first refusals.
func (d *desks) show(who desktop, refusals int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.all[who]; t != nil {
		t.shown = min(refusals, len(t.trouble))
	}
}

// calm removes the refusals that a person has seen.
func (d *desks) calm(who desktop) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.all[who]; t != nil {
		t.trouble, t.shown = t.trouble[t.shown:], 0
	}
}

// leaves marks a decision as being sent. It returns false if the decision was undone.
func (d *desks) leaves(t *taken, number int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(t.sending, func(s sending) bool { return s.number == number })
	if i >= 0 {
		t.sending[i].leaving = true
	}
	return i >= 0
}

// drop removes the decision on an item, unless it is being sent.
func (t *taken) drop(item int64) (was bool) {
	n := len(t.sending)
	t.sending = slices.DeleteFunc(t.sending, func(s sending) bool {
		if s.Item != item || s.leaving {
			return false
		}
		s.timer.Stop()
		return true
	})
	return len(t.sending) < n
}

// retract undoes a decision that is not sent yet.
func (s *site) retract(v *view, who desktop) (string, error) {
	item, err := strconv.ParseInt(v.PathValue("id"), 10, 64)
	s.desks.mu.Lock()
	defer s.desks.mu.Unlock()
	if t := s.desks.all[who]; err != nil || t == nil || !t.drop(item) {
		return "", &apiError{Status: http.StatusConflict, Title: "It is too late to undo this",
			Detail: "the decision has been sent", Hint: "open the item: a finished item can be reopened"}
	}
	return "/desk?at=" + v.PathValue("id"), nil
}

// deskAct carries out requests of the desk, and redirects to the path that it returns.
func (s *site) deskAct(do func(*view, desktop) (string, error)) http.HandlerFunc {
	return s.looks(func(w http.ResponseWriter, v *view) {
		me, err := get[answer.Me](v, "/me", nil)
		to := ""
		if err == nil && !me.May("work") {
			err = &apiError{Status: http.StatusForbidden, Title: "This token may not work",
				Detail: "the token " + me.Name + " has no scope work", Hint: "log in with another one"}
		}
		if err == nil {
			who := desktop{v.token, deskAgent(me)}
			s.desks.calm(who)
			to, err = do(v, who)
		}
		if err != nil {
			s.fail(w, v.Request, "/desk", err)
			return
		}
		s.redirect(w, v.Request, to)
	})
}
