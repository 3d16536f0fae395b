package ledger

import (
	"context"
	"os"

	"github.com/ledgerd/ledgerd/ledger/process"
)

// ExpireGone takes the leases of programs that are known to be gone, see Agent.Gone, before these leases expire, and
// ends the heartbeats of the programs. The items are treated as if their leases had expired. It returns the number of
// leases. Every worker calls it regularly.
func (l *Ledger) ExpireGone(ctx context.Context) (int, error) {
	if err := l.fit(ctx, nil); err != nil {
		return 0, err
	}
	agents, err := l.store.Heartbeats(ctx)
	if err != nil {
		return 0, err
	}
	total := 0
	for _, a := range agents {
		if !l.gone(a) {
			continue
		}
		for {
			n, err := l.expireOf(ctx, a)
			if err != nil {
				return total, err
			}
			if total += n; n == 0 {
				break
			}
		}
	}
	return total, nil
}

// maxLost is how many leases one transaction takes: between two of them, other agents can renew theirs.
const maxLost = 100

// CodeGone is the code of attempts that were lost because their process was known to be gone.
const CodeGone = "process_gone"

// expireOf takes the leases of an agent that is gone, unless a live process has its name now.
func (l *Ledger) expireOf(ctx context.Context, a Agent) (n int, err error) {
	var kinds []string
	err = l.store.Update(ctx, nil, func(tx Tx) error {
		n, kinds = 0, nil
		same, err := tx.EndBeat(a.Name, a.Process)
		if err != nil || !same {
			return err
		}
		recs, err := tx.LoadLeased(a.Name, maxLost)
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

// lose ends the claims of leased records whose holders do not report. It adds to kinds the kinds whose items became
// ready.
func (l *Ledger) lose(tx Tx, recs []Record, code string, kinds *[]string) error {
	changes := make([]Change, len(recs))
	for i := range recs {
		lost := Result{Outcome: OutcomeLost, Code: code, NoReport: true}
		changes[i] = recs[i].settle(lost, tx.Now(), l.jitter())
		if w := changes[i].Work; w != nil && w.State == StateReady {
			*kinds = append(*kinds, recs[i].Kind)
		}
	}
	return applyEnds(tx, recs, changes, kinds)
}

// Gone reports whether the process of an agent is known to be gone, with all that it has started: see process.Gone.
// An agent of another host is not known to be gone.
func (a Agent) Gone() bool {
	host, err := os.Hostname()
	return err == nil && a.Host == host && process.Gone(a.Process, a.PID)
}
