package ours

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/ledger"
)

// Shared is what several daemons together achieved.
type Shared struct {
	PerSecond float64   // by the database's clock, from the first claim to the last end
	Shares    []float64 // of each daemon, percent, ascending
	// Memory is that of the daemon with most memory, Plugin that of the plugins with most, in MiB, at each memoryEvery
	// while they worked.
	Memory, Plugin []float64
}

const memoryEvery = 100 * time.Millisecond

// readyTime bounds how long daemons may take to start: a daemon that has ended is never ready.
const readyTime = time.Minute

// Daemons measures how fast so many `ledgerd work` processes work n items, each with its own plugin process. All
// processes are ready before there are items to claim.
func (b *Bench) Daemons(ctx context.Context, on On, n, daemons int) (s Shared, err error) {
	err = with(ctx, on, func(p *Place, l *ledger.Ledger) (err error) {
		if err := fillPaused(ctx, p, l, n); err != nil {
			return err
		}
		s, err = b.daemons(ctx, p, p.Address(), l, n, daemons)
		return err
	})
	return s, err
}

// DaemonOverHTTP measures how fast one `ledgerd work` process works n items if it reaches the ledger only through
// `ledgerd api`.
func (b *Bench) DaemonOverHTTP(ctx context.Context, on On, n int) (s Shared, err error) {
	err = with(ctx, on, func(p *Place, l *ledger.Ledger) error {
		if err := fillPaused(ctx, p, l, n); err != nil {
			return err
		}
		return b.serve(ctx, p, func(a *api) (err error) {
			s, err = b.daemons(ctx, p, a.url, l, n, 1)
			return err
		})
	})
	return s, err
}

// fillPaused adds n items that cannot be claimed yet.
func fillPaused(ctx context.Context, p *Place, l *ledger.Ledger, n int) error {
	if err := l.SetKind(ctx, "bench", ledger.Kind{Name: Kind, Plugin: Kind, Paused: true}); err != nil {
		return err
	}
	if _, err := Add(ctx, l, 0, n, 2); err != nil {
		return err
	}
	return p.Settle(ctx)
}

// daemons starts processes that reach the ledger at an address, and lets them work its items.
func (b *Bench) daemons(ctx context.Context, p *Place, address string, l *ledger.Ledger, n, daemons int) (s Shared,
	err error) {
	var running []*exec.Cmd
	defer func() {
		for _, cmd := range running {
			err = errors.Join(err, cmd.Process.Signal(syscall.SIGTERM))
		}
		for _, cmd := range running {
			_ = cmd.Wait() // its state tells more
			if cmd.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
				err = errors.Join(err, fmt.Errorf("%s: %s", cmd.ProcessState, cmd.Stderr))
			}
		}
	}()
	for range daemons {
		cmd := exec.CommandContext(ctx, filepath.Join(b.Programs, "ledgerd"), "work", "--kind", Kind, "--plugin-dir",
			b.Programs, "--quiet")
		cmd.Env = append(os.Environ(), "LEDGERD_DB="+address)
		cmd.Stderr = new(bytes.Buffer) // each its own: a command writes without a lock
		if err := cmd.Start(); err != nil {
			return s, err
		}
		running = append(running, cmd)
	}
	starting, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	if err := until(starting, func() (bool, error) {
		agents, err := l.Agents(starting)
		agents = slices.DeleteFunc(agents, func(a ledger.Agent) bool { return len(a.Kinds) == 0 }) // `ledgerd api`
		return len(agents) == daemons, err
	}); err != nil {
		return s, err
	}
	if _, err := l.EditKind(ctx, "bench", Kind, func(k *ledger.Kind, _ bool) { k.Paused = false }); err != nil {
		return s, err
	}
	if _, err := l.Add(ctx, Items(n, 1)...); err != nil { // an added item makes every daemon claim
		return s, err
	}
	if err := until(ctx, func() (bool, error) {
		most, plugin := 0.0, 0.0
		for _, cmd := range running {
			own, children, err := memory(cmd.Process.Pid)
			if err != nil {
				return false, err
			}
			most, plugin = max(most, own), max(plugin, children)
		}
		s.Memory, s.Plugin = append(s.Memory, most), append(s.Plugin, plugin)
		if len(s.Memory)%5 > 0 { // reading the ledger adds to the measured cost
			return false, nil
		}
		st, err := l.Standing(ctx, Kind)
		return st.Ready+st.Held+st.Waiting == 0, err
	}); err != nil {
		return s, err
	}
	s.PerSecond, s.Shares, err = p.shares(ctx, n+1, daemons)
	return s, err
}

// until polls a state that other processes change.
func until(ctx context.Context, ok func() (bool, error)) error {
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// shares computes from the attempts the share of each agent, and the rate of all together.
func (p *Place) shares(ctx context.Context, n, daemons int) (perSecond float64, shares []float64, err error) {
	counts, seconds, err := p.attempts(ctx)
	if err != nil {
		return 0, nil, err
	}
	total := 0
	for _, c := range counts {
		total += c
	}
	if total != n {
		return 0, nil, fmt.Errorf("%d attempts of %d items", total, n)
	}
	shares = make([]float64, daemons) // a daemon that did nothing has no attempt
	for i, c := range counts {
		shares[i] = 100 * float64(c) / float64(n)
	}
	slices.Sort(shares)
	return float64(n) / seconds, shares, nil
}

// attempts returns the number of attempts of each agent, and the seconds from the first claim to the last end.
func (p *Place) attempts(ctx context.Context) (counts []int, seconds float64, err error) {
	if p.file != "" {
		return p.attemptsInFile(ctx)
	}
	conn, err := pgx.Connect(ctx, p.Address())
	if err != nil {
		return nil, 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, "SELECT count(*) FROM ledger_attempts GROUP BY agent")
	if err != nil {
		return nil, 0, err
	}
	if counts, err = pgx.CollectRows(rows, pgx.RowTo[int]); err != nil {
		return nil, 0, err
	}
	err = conn.QueryRow(ctx,
		"SELECT extract(epoch FROM max(finished_at) - min(leased_at))::float8 FROM ledger_attempts").Scan(&seconds)
	return counts, seconds, err
}
