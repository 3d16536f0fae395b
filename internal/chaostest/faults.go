//go:build unix

package chaostest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/internal/failpoint"
	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/ledger"
)

// env returns environment variables for a daemon: in runs with failpoints they arm a point.
func (r *run) env(random *rand.Rand) []string {
	if r.plan.Fault != Failpoint {
		return nil
	}
	other := map[Database]string{SQLite: "postgres.", Postgres: "sqlite."}[r.plan.Database]
	points := slices.DeleteFunc(slices.Clone(failpoint.Points), func(name string) bool {
		return strings.HasPrefix(name, other)
	})
	point := points[random.IntN(len(points))]
	how := ""
	if random.IntN(6) == 0 {
		how = ":stop"
	}
	return []string{fmt.Sprintf("LEDGERD_FAILPOINT=%s:%d%s", point, 1+random.IntN(5), how)}
}

// faults causes faults until ctx ends.
func (r *run) faults(ctx context.Context) error {
	random := r.plan.random(forFaults)
	for {
		if sleep(ctx, r.plan.Pace/2+rand.N(r.plan.Pace)); ctx.Err() != nil {
			return nil
		}
		if err := r.strike(ctx, random); err != nil {
			return fmt.Errorf("%s: %w", r.plan.Fault, err)
		}
	}
}

// strike causes one fault.
func (r *run) strike(ctx context.Context, random *rand.Rand) error {
	slot := random.IntN(r.plan.Daemons)
	// Most kills and freezes hit a process that holds a lease, some hit any process.
	if slices.Contains([]Fault{Kill, Pause, RemoteKill, RemotePause, Agents}, r.plan.Fault) && random.IntN(8) > 0 {
		if slot = r.busy(ctx, random); slot < 0 {
			return nil
		}
	}
	if r.plan.Fault.remote() {
		return r.strikeRemote(slot, random)
	}
	switch r.plan.Fault {
	case Kill:
		return r.killOne(slot, random)
	case Failpoint, Plugin:
		return r.revive(random)
	case Pause:
		r.pause(slot, random)
		return nil
	case Crash:
		r.count(Crash)
		if err := r.server.Crash(); err != nil {
			return err
		}
		return r.server.StartAgain()
	case Failover:
		return r.failOver(ctx, random)
	case Terminate:
		return r.terminate(ctx)
	case Cut:
		r.proxy.next.Store(1 + int32(random.IntN(2)))
		return nil
	case ReadOnly:
		return r.readOnly(ctx)
	case DiskFull:
		return r.fillDisk(ctx)
	case Hog:
		return r.hog(ctx)
	case Clock:
		return r.skew(slot, random)
	case Agents:
		return r.strikeAgent(slot, random)
	}
	return nil
}

// busy returns the slot of a daemon that holds leases, −1 if none does or the ledger does not answer.
func (r *run) busy(ctx context.Context, random *rand.Rand) int {
	held := map[string]bool{}
	for it, err := range r.client.List(ctx, ledger.Filter{States: []ledger.State{ledger.StateLeased}}, 0) {
		if err != nil {
			return -1
		}
		held[nameOf(it.Agent)] = true
	}
	for _, slot := range random.Perm(r.plan.Daemons) {
		if d := r.daemons[slot]; !d.gone() && held[d.name()] && r.frozen[d.cmd.Process.Pid] == 0 {
			return slot
		}
	}
	return -1
}

// killOne kills the daemon of a slot and starts another one.
func (r *run) killOne(slot int, random *rand.Rand) error {
	r.kill(r.daemons[slot])
	return r.replace(slot, r.env(random)...)
}

// kill kills a daemon and records the time.
func (r *run) kill(d *daemon) {
	if d.gone() {
		return
	}
	r.count(r.plan.Fault)
	r.ended = append(r.ended, ending{Agent: d.name(), At: history.Now()})
	d.ended.Store(true)
	d.signal(syscall.SIGKILL)
	<-d.exited
}

// replace starts a new daemon in a slot.
func (r *run) replace(slot int, env ...string) (err error) {
	r.daemons[slot], err = r.start(slot, env...)
	return err
}

// revive replaces daemons that died by themselves, and wakes daemons that have been frozen longer than a lease.
func (r *run) revive(random *rand.Rand) error {
	for slot, d := range r.daemons {
		switch pid := d.cmd.Process.Pid; {
		case d.gone():
			r.ended = append(r.ended, ending{Agent: d.name(), At: history.Now()})
			if err := r.replace(slot, r.env(random)...); err != nil {
				return err
			}
		case d.frozen() && r.frozen[pid] == 0:
			r.frozen[pid] = history.Now()
		case d.frozen() && time.Duration(history.Now()-r.frozen[pid]) > r.beyond():
			d.signal(syscall.SIGCONT)
		case r.plan.Fault == Failpoint && time.Duration(history.Now()-d.began) > oldAge:
			d.signal(syscall.SIGTERM) // shutdown has failpoints, too, and the next daemon has another one
		}
	}
	return nil
}

// oldAge is how long a daemon may work without reaching its failpoint.
const oldAge = 2500 * time.Millisecond

// beyond returns a time that is longer than a lease.
func (r *run) beyond() time.Duration { return r.plan.Lease + 1500*time.Millisecond }

// pause freezes a daemon until its leases have expired: in one of four cases with its plugins, in one its plugins
// alone.
func (r *run) pause(slot int, random *rand.Rand) {
	d := r.daemons[slot]
	pid := d.cmd.Process.Pid
	pids := []int{pid}
	switch random.IntN(4) {
	case 0:
		pids = append(pids, children(pid)...)
	case 1:
		pids = children(pid)
	}
	r.freeze(d, pids)
}

// freeze stops processes until their leases have expired.
func (r *run) freeze(d *daemon, pids []int) {
	pid := d.cmd.Process.Pid
	if d.gone() || r.frozen[pid] != 0 {
		return
	}
	r.count(r.plan.Fault)
	r.frozen[pid] = history.Now()
	r.ended = append(r.ended, ending{Agent: d.name(), At: history.Now(), Paused: true})
	for _, p := range pids {
		_ = syscall.Kill(p, syscall.SIGSTOP) // a plugin may have ended
	}
	r.waking.Go(func() {
		time.Sleep(r.beyond())
		for _, p := range pids {
			_ = syscall.Kill(p, syscall.SIGCONT)
		}
	})
}

// terminate ends one connection of the run's daemons on the server.
func (r *run) terminate(ctx context.Context) error {
	tag, err := r.admin.Exec(ctx,
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 ORDER BY random() LIMIT 1`, r.name)
	if err == nil && tag.RowsAffected() > 0 {
		r.count(Terminate)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// readOnly makes the server refuse writes for a while, as a demoted server does.
func (r *run) readOnly(ctx context.Context) error {
	set := func(value string) error {
		if _, err := r.admin.Exec(context.WithoutCancel(ctx), "ALTER SYSTEM SET default_transaction_read_only = "+
			value); err != nil {
			return err
		}
		_, err := r.admin.Exec(context.WithoutCancel(ctx), "SELECT pg_reload_conf()")
		return err
	}
	r.count(ReadOnly)
	if err := set("on"); err != nil {
		return err
	}
	sleep(ctx, 700*time.Millisecond)
	return set("off")
}

// sleep waits until the time is over or ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// fillDisk fills the file system of the ledger to the last byte, and frees it after a while.
func (r *run) fillDisk(ctx context.Context) error {
	path := filepath.Join(filepath.Dir(r.file), "filler")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	r.count(DiskFull)
	for size := 1 << 16; size > 0; { // smaller writes fill what larger ones leave
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 4
		}
	}
	f.Close() // an error is expected, since the disk is full
	sleep(ctx, time.Second)
	return os.Remove(path)
}

// skew kills daemons and restarts them with another clock. All processes on one SQLite file use the machine's clock,
// and so does the ledger: there the clock steps for all of them at once.
func (r *run) skew(slot int, random *rand.Rand) error {
	if r.plan.Database == Postgres {
		offset := time.Duration(random.IntN(3)-1) * time.Hour
		r.kill(r.daemons[slot])
		if err := r.setClock(slot, offset); err != nil {
			return err
		}
		return r.replace(slot)
	}
	for _, d := range r.daemons {
		r.kill(d)
	}
	// A step back prolongs all leases by the same time, so it is short.
	step := []time.Duration{time.Hour, time.Minute, -4 * time.Second}[random.IntN(3)]
	r.offset.Add(int64(step))
	for i := range r.daemons {
		if err := r.setClock(i, time.Duration(r.offset.Load())); err != nil {
			return err
		}
		if err := r.replace(i); err != nil {
			return err
		}
	}
	return nil
}

// setClock sets how wrong the clock of the programs in a slot is.
func (r *run) setClock(slot int, offset time.Duration) error {
	program, err := r.program(slot)
	if err != nil {
		return err
	}
	return os.WriteFile(program+".clock", fmt.Appendln(nil, int64(offset)), 0o600)
}
