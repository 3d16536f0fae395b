//go:build unix

package chaostest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/pgtest/cluster"
)

// pair is a primary with a synchronous standby, and what a failover tool does with them.
type pair struct{ primary, standby *cluster.Cluster }

func newPair(ctx context.Context) (p *pair, err error) {
	p = &pair{}
	if p.primary, err = cluster.Start(cluster.Options{Fsync: true}); err != nil {
		return nil, err
	}
	if err := p.join(ctx, 0); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *pair) close() (err error) {
	for _, c := range []*cluster.Cluster{p.standby, p.primary} {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	return err
}

// join makes a standby, makes commits wait for it, and returns when they do. No failover may happen before.
func (p *pair) join(ctx context.Context, port int) (err error) {
	if p.standby, err = cluster.Start(cluster.Options{Fsync: true, Of: p.primary, Port: port}); err != nil {
		return err
	}
	if err := p.await(ctx, "*"); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, p.primary.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for end := time.Now().Add(time.Minute); time.Now().Before(end); sleep(ctx, 20*time.Millisecond) {
		var ready bool
		err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')`).Scan(&ready)
		if err != nil || ready {
			return err
		}
	}
	return errors.New("the standby is not synchronous after a minute")
}

// await names the standbys that commits of the primary wait for.
func (p *pair) await(ctx context.Context, standbys string) error {
	conn, err := pgx.Connect(ctx, p.primary.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "ALTER SYSTEM SET synchronous_standby_names = '"+standbys+"'"); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "SELECT pg_reload_conf()")
	return err
}

// failOver ends the primary, or freezes it, and promotes the standby. A frozen primary comes back for a moment, as if
// it is fenced too late. At the end a new standby takes the place of the old primary.
func (r *run) failOver(ctx context.Context, random *rand.Rand) error {
	ctx = context.WithoutCancel(ctx) // the run needs a complete pair after its faults
	p, began := r.pair, time.Now()
	old := p.primary
	frozen := random.IntN(2) == 0
	if frozen {
		if err := signalServer(old, syscall.SIGSTOP); err != nil {
			return err
		}
		r.faulted["primary frozen"]++
	} else if err := old.Crash(); err != nil {
		return err
	}
	err := p.standby.Promote()
	if frozen {
		err = errors.Join(err, signalServer(old, syscall.SIGCONT))
	}
	if err != nil {
		return err
	}
	p.primary, p.standby = p.standby, nil
	if frozen {
		sleep(ctx, time.Duration(random.IntN(1500))*time.Millisecond)
	}
	if err := old.Close(); err != nil {
		return err
	}
	r.count(Failover)
	it := r.item(random, afterFailover+len(r.moved))
	for ; ; sleep(ctx, 50*time.Millisecond) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err := r.client.Add(ctx, it)
		if cancel(); err == nil {
			break
		}
		if tolerable(err) != nil || time.Since(began) > r.plan.bound(calmTime) {
			return fmt.Errorf("an add after a failover: %w", err)
		}
	}
	r.moved = append(r.moved, time.Since(began).Seconds())
	return p.join(ctx, old.Port)
}

// afterFailover is above the numbers of all other items of a run.
const afterFailover = 1_000_000

// signalServer sends a signal to all processes of a server.
func signalServer(c *cluster.Cluster, s syscall.Signal) error {
	pid, err := c.PID()
	if err != nil {
		return err
	}
	err = syscall.Kill(pid, s) // before the others, since this process starts new ones
	for _, pid := range children(pid) {
		if gone := syscall.Kill(pid, s); !errors.Is(gone, syscall.ESRCH) {
			err = errors.Join(err, gone)
		}
	}
	return err
}
