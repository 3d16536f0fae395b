package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/lending"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

const (
	deskLease = 600              // seconds that a person has for an item
	handLease = 3600             // of a person who is not at the desk
	deskHold  = 10 * time.Second // until a decision is sent
	deskMost  = 5                // items that a person takes at once
)

// desks are the items that people have taken, with decisions that are not sent yet. They are in memory. After a
// restart, people take their items again while these are still leased, and decisions that were not sent are lost.
type desks struct {
	mu     sync.Mutex
	all    map[desktop]*taken
	newest int // number of the newest decision
}

// desktop identifies the desk of one person: the API token, and the name under which items are claimed.
type desktop struct{ token, agent string }

// taken are the items and decisions of one person.
type taken struct {
	leases  []lease
	sending []sending
	trouble []string // why decisions were refused
	shown   int      // how many entries of trouble a page has shown
}

// lease is an item that a person has taken.
type lease struct {
	lending.Lent
	Note  string    // as the person last typed it
	until time.Time // by the clock of this machine; the clock of the ledger may differ
}

// sending is a decision that is held until it is sent.
type sending struct {
	Item int64
	Key  string
	Word string // the decision, as people read it
	At   report.Time
	// Leaving means that the decision is being sent, for the first time or again, so it cannot be undone.
	Leaving bool

	number int         // of the decision
	timer  *time.Timer // sends the decision
}

// read returns the items that a person holds and has not decided, the decisions that are not sent yet, and why earlier
// decisions were refused. It asks the API which leases are lost, and leaves out their items.
func (d *desks) read(v *view, agent string) (open []lease, held []sending, trouble []string, err error) {
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
	t.leases = slices.DeleteFunc(t.leases, func(l lease) bool { return lost[l.Token] })
	for _, l := range t.leases {
		if !t.decided(l.ID) {
			open = append(open, l)
		}
	}
	return open, slices.Clone(t.sending), slices.Clone(t.trouble), nil
}

// take claims the next items of a kind for the user, up to deskMost with the items that the user holds and has not
// decided; or one item if the form names it.
func (s *site) take(v *view, who desktop) (string, error) {
	kind := v.PostFormValue("kind")
	c := lending.Claim{Kind: kind, Agent: who.agent, Limit: deskMost + s.desks.decided(who, kind), Lease: deskLease,
		Resume: true}
	if item := v.PostFormValue("item"); item != "" {
		id, _ := strconv.ParseInt(item, 10, 64) // the API refuses 0
		c.Items = []int64{id}
	}
	got, err := send[lending.Claimed](v, http.MethodPost, "/claims", nil, c)
	if err != nil {
		return "", err
	}
	if at := s.desks.add(who, got.Leases...); at != 0 {
		return "/desk?at=" + strconv.FormatInt(at, 10), nil
	}
	return "", &apiError{Status: http.StatusConflict, Title: "Nothing was taken", Detail: "no item of " + kind +
		" is ready, or its pause or its limits hold them back", Hint: "look again later; Work and Limits show what waits"}
}

// decided is how many items of a kind a person holds and has decided.
func (d *desks) decided(who desktop, kind string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.desk(who)
	for _, l := range t.leases {
		if l.Kind == kind && t.decided(l.ID) {
			n++
		}
	}
	return n
}

// decided reports whether an item has a decision that is not recorded yet.
func (t *taken) decided(item int64) bool {
	return slices.ContainsFunc(t.sending, func(s sending) bool { return s.Item == item })
}

// desk returns the items of a person. The caller holds mu.
func (d *desks) desk(who desktop) *taken {
	if d.all[who] == nil {
		d.all[who] = &taken{}
	}
	return d.all[who]
}

// add keeps leases that were just extended, and removes those that have ended. It returns the first of these items that
// is not decided, 0 if there is none.
func (d *desks) add(who desktop, leases ...lending.Lent) (first int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for other, t := range d.all {
		t.leases = slices.DeleteFunc(t.leases, func(l lease) bool { return l.until.Before(now) })
		if len(t.leases)+len(t.sending)+len(t.trouble) == 0 {
			delete(d.all, other)
		}
	}
	t := d.desk(who)
	for _, l := range leases {
		i := slices.IndexFunc(t.leases, func(o lease) bool { return o.ID == l.ID })
		if i < 0 {
			i, t.leases = len(t.leases), append(t.leases, lease{})
		}
		t.leases[i].Lent, t.leases[i].until = l, now.Add(deskLease*time.Second)
		if first == 0 && !t.decided(l.ID) {
			first = l.ID
		}
	}
	return first
}

// noted finds a lease of a person by the item, and stores the note that the person has typed. If note is nil, the note
// stays.
func (d *desks) noted(who desktop, item string, note *string) (l lending.Lent, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.desk(who)
	i := slices.IndexFunc(t.leases, func(l lease) bool { return strconv.FormatInt(l.ID, 10) == item })
	if i < 0 {
		return l, &apiError{Status: http.StatusConflict, Title: "You do not hold this item",
			Detail: "its lease has ended, or the program was restarted", Hint: "take it again on the desk"}
	}
	if note != nil {
		t.leases[i].Note = *note
	}
	return t.leases[i].Lent, nil
}

// decide takes a person's decision on an item. The decision is sent after ten seconds, so that it can be undone. The
// lease is extended first, so that it lasts until then.
func (s *site) decide(v *view, who desktop) (string, error) {
	note := v.PostFormValue("note")
	l, err := s.desks.noted(who, v.PathValue("id"), &note)
	if err != nil {
		return "", err
	}
	do := v.PostFormValue("do")
	if do == "keep" {
		return "/desk?at=" + v.PathValue("id"), s.keep(v, who, l)
	}
	e, word, err := endingOf(l.Token, do, note)
	if err == nil {
		err = s.keep(v, who, l)
	}
	if err != nil {
		return "", err
	}
	s.desks.hold(who, sending{Item: l.ID, Key: l.Key, Word: word}, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(v.Context()), deskHold)
		defer cancel()
		later := &view{Request: v.WithContext(ctx), site: s, token: who.token}
		_, err := send[lending.LeaseAnswers](later, http.MethodPost, "/leases/finish", nil,
			map[string][]lending.Ending{"endings": {e}})
		return err
	})
	return local(v.PostFormValue("back")), nil
}

// handOver releases an item and claims it for another person. The first claim is refused, since the user holds the
// item: so the API checks the name, and the right to claim under it, before the item is released.
func (s *site) handOver(v *view, who desktop) (string, error) {
	l, err := s.desks.noted(who, v.PathValue("id"), nil)
	if err != nil {
		return "", err
	}
	e, _, err := endingOf(l.Token, "release", v.PostFormValue("note"))
	if err != nil {
		return "", err
	}
	claim := lending.Claim{Kind: l.Kind, Agent: strings.TrimSpace(v.PostFormValue("to")), Lease: handLease,
		Items: []int64{l.ID}}
	kind, err := get[answer.Kind](v, "/kinds/"+url.PathEscape(l.Kind), nil)
	switch {
	case err != nil:
		return "", err
	case kind.Paused:
		return "", &apiError{Status: http.StatusConflict, Title: "It was not handed over", Detail: "kind " + l.Kind +
			" is paused, so no one can claim it"}
	case claim.Agent == who.agent:
		return "", &apiError{Status: http.StatusConflict, Title: "It was not handed over", Detail: "you hold it already"}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.Context()), deskHold) // both steps, or none
	defer cancel()
	v = &view{Request: v.WithContext(ctx), site: s, token: who.token}
	got, err := send[lending.Claimed](v, http.MethodPost, "/claims", nil, claim)
	held := err != nil && problemOf(err).Code == "conflict"
	if held {
		if _, err := send[lending.LeaseAnswers](v, http.MethodPost, "/leases/finish", nil,
			map[string][]lending.Ending{"endings": {e}}); err != nil {
			return "", err
		}
		got, err = send[lending.Claimed](v, http.MethodPost, "/claims", nil, claim)
	}
	if err == nil && len(got.Leases) == 0 {
		err = &apiError{Status: http.StatusConflict, Title: "It was not handed over", Detail: claim.Agent +
			" was asked to claim nothing more"}
	}
	if err != nil && held {
		p := problemOf(err)
		p.Title = "It was released, but not claimed for " + claim.Agent
		err = (*apiError)(&p)
	}
	return "/items/" + v.PathValue("id"), err
}

// keep extends a lease.
func (s *site) keep(v *view, who desktop, l lending.Lent) error {
	got, err := send[lending.LeaseAnswers](v, http.MethodPost, "/leases/renew", nil,
		lending.Renewal{Tokens: []string{l.Token}, Lease: deskLease})
	if err == nil && len(got.Answers) == 1 {
		l.Expires = got.Answers[0].Expires
		s.desks.add(who, l)
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
	if do != "done" && len(note) > bounds.MaxError {
		return e, "", &apiError{Status: http.StatusUnprocessableEntity, Title: "The note is too long",
			Detail: fmt.Sprintf("it has %s bytes; an error has at most %s, and nothing was decided",
				report.Count(int64(len(note))), report.Count(bounds.MaxError)), Hint: "go back and shorten it"}
	}
	switch do {
	case "done":
		word = cmp.Or(word, "done")
	case "failed":
		e.Outcome, e.Error, e.Final, word = ledger.OutcomeFailed, note, true, "failed"
		return e, word, nil
	case "release":
		e.Outcome, e.Error, word = ledger.OutcomeReleased, note, "handed back"
		return e, word, nil
	default:
		return e, "", &apiError{Status: http.StatusUnprocessableEntity, Title: "There is no such act", Detail: do}
	}
	if len(result) > 0 {
		e.Output, err = json.Marshal(result)
	}
	return e, word, err
}

// hold calls do after deskHold, to send a decision, unless the decision is undone. While the ledger cannot be reached,
// do is called again until the lease ends.
func (d *desks) hold(who desktop, x sending, do func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.desk(who)
	x.At = report.Time(time.Now().Add(deskHold))
	until := time.Now().Add(deskLease * time.Second) // the lease was just extended
	d.newest++
	number := d.newest
	x.number = number
	x.timer = time.AfterFunc(deskHold, func() {
		if !d.leaves(t, number) {
			return // it was undone as the time was over
		}
		var p answer.Problem
		err := do()
		if err != nil {
			p = problemOf(err)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if p.Status == http.StatusServiceUnavailable && time.Now().Before(until) {
			x.timer.Reset(deskHold)
			return
		}
		t.sending = slices.DeleteFunc(t.sending, func(s sending) bool { return s.number == number })
		if err != nil {
			t.trouble = append(t.trouble, x.Key+" was not recorded as "+x.Word+": "+p.Detail)
		}
		if err == nil || p.Code == "lease_lost" {
			t.leases = slices.DeleteFunc(t.leases, func(l lease) bool { return l.ID == x.Item })
		}
	})
	t.drop(x.Item)
	t.sending = append(t.sending, x)
}

// show records how many refusals a page shows.
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
		t.sending[i].Leaving = true
	}
	return i >= 0
}

// drop removes the decision on an item, unless it is being sent.
func (t *taken) drop(item int64) (was bool) {
	n := len(t.sending)
	t.sending = slices.DeleteFunc(t.sending, func(s sending) bool {
		if s.Item != item || s.Leaving {
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
			Detail: "the decision has been sent, or is being sent", Hint: "open the item: a finished item can be reopened"}
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
