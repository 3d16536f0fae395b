package ledger

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// of returns an error if the ledger is of another environment than a program. A ledger without one is for programs of
// every environment.
func (s Schema) of(environment string) error {
	if s.Environment == "" || s.Environment == environment {
		return nil
	}
	program := "this program names none"
	if environment != "" {
		program = fmt.Sprintf("this program of %q", environment)
	}
	return &Error{Kind: ErrDenied, Act: act.Act{Name: act.SetEnvironment},
		Message: fmt.Sprintf("the ledger in %s is of the environment %q, and %s", s.Ledger, s.Environment, program),
		Hint: fmt.Sprintf("to use it nevertheless, set environment = %q in the config; a copy gets one of its own",
			s.Environment)}
}

// SetEnvironment records the environment that the ledger is of, up to 64 bytes such as "production"; "" means none.
// Programs of another environment, or of none, then begin nothing in it: they add, claim, change, lock and list
// nothing. Those that have it open notice it within 5 s, and still end what they have begun. Backups and copies have
// the environment, too. The journal names actor as the operator. On Postgres it needs the rights of the owner of the
// tables.
func (l *Ledger) SetEnvironment(ctx context.Context, actor, name string) error {
	c := checker{}
	c.agent(actor)
	if c.text("environment", name, bounds.MaxEnvironment); c.err != nil {
		return c.err
	}
	detail := cmp.Or(name, "none")
	return l.store.Update(ctx, nil, func(tx Tx) error {
		if err := tx.PutEnvironment(name, true); err != nil {
			return err
		}
		return tx.Journal(JournalEntry{Actor: actor, Action: "set-environment", Subject: "ledger", Detail: detail})
	})
}

// RecordEnvironment records the environment of this program in a ledger that was just made, without an entry in the
// journal. It returns an error if the ledger is of another one by then.
func (l *Ledger) RecordEnvironment(ctx context.Context) error {
	c := checker{}
	if c.text("environment", l.environment, bounds.MaxEnvironment); c.err != nil || l.environment == "" {
		return c.err
	}
	err := l.store.Update(ctx, nil, func(tx Tx) error { return tx.PutEnvironment(l.environment, false) })
	if err == nil {
		err = l.checkFitness(ctx)
	}
	return err
}
