package ledger

import "context"

// ExpireGone takes the leases of programs that are known to be gone, see Agent.Gone, without waiting for
// their end, and ends their heartbeats. What becomes of the items is what becomes of them when a lease
// expires. It returns how many. Every worker does it.
func (l *Ledger) ExpireGone(ctx context.Context) (int, error) {
	if err := l.fit(ctx, nil); err != nil {
		return 0, err
	}
	agents, err := l.store.Heartbeats(ctx)
	if err != nil {
		return 0, err
	}
	all := 0
	for _, a := range agents {
		if !l.gone(a) {
			continue
		}
		for n := goneMost; n == goneMost; all += n {
			if n, err = l.expireOf(ctx, a); err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

// goneMost is how many leases are taken at a time: others' renewals come in between.
const goneMost = 100

// CodeGone is the code of attempts that were lost because their process was known to be gone.
const CodeGone = "process_gone"

// expireOf takes leases of an agent that is gone, unless a process that lives has its name by now.
func (l *Ledger) expireOf(ctx context.Context, a Agent) (n int, err error) {
	var kinds []string
	err = l.store.Update(ctx, nil, func(tx Tx) error {
		n, kinds = 0, nil
		same, err := tx.EndBeat(a.Name, a.Process)
		if err != nil || !same {
			return err
		}
		recs, err := tx.LoadLeased(a.Name, goneMost)
		if err != nil {
			return err
		}
		n = len(recs)
		return l.lose(tx, recs, CodeGone, &kinds)
	})
	if err == nil {
		l.announce(kinds)
	}
	return n, err
}

// lose ends the claims of records that are leased and whose holders do not report. kinds gets those of
// which something is ready by it.
func (l *Ledger) lose(tx Tx, recs []Record, code string, kinds *[]string) error {
	changes := make([]Change, len(recs))
	for i := range recs {
		lost := Result{Outcome: OutcomeLost, Code: code, NoReport: true}
		changes[i] = recs[i].settle(lost, tx.Now(), l.jitter())
		if w := changes[i].Work; w != nil && w.State == StateReady {
			*kinds = append(*kinds, recs[i].Kind)
		}
	}
	return applyFreeing(tx, recs, changes, kinds)
}
