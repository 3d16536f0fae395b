//go:build unix

package chaostest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ledgerd/ledgerd/internal/pgtest/cluster"
)

// Campaign makes many runs.
type Campaign struct {
	Program string // a chaos build of ledgerd
	Dir     string // for the files of runs with violations; must be on the file system of Program
	// Parallel is the number of runs at a time. Runs mostly wait for leases to expire.
	Parallel int
	// Most bounds the time in which runs begin; 0 means no bound.
	Most time.Duration
	// Done is called after each run, one call at a time.
	Done func(Result)

	server *cluster.Cluster // for runs on Postgres that do not need their own
}

// Work makes runs of these plans. It returns errors of the harness only; failures of ledgerd are in the results.
func (c *Campaign) Work(ctx context.Context, plans []Plan) (err error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return err
	}
	if slices.ContainsFunc(plans, func(p Plan) bool { return p.Database == Postgres && !p.Fault.alone() }) {
		if c.server, err = cluster.Start(cluster.Options{Fsync: true,
			Settings: map[string]string{"max_connections": "400"}}); err != nil {
			return fmt.Errorf("Postgres: %w", err)
		}
		defer func() {
			err = cmp.Or(err, c.server.Close())
			c.server = nil
		}()
	}
	return c.work(ctx, plans)
}

func (c *Campaign) work(ctx context.Context, plans []Plan) error {
	began := time.Now()
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, c.Parallel))
	for _, p := range plans {
		g.Go(func() error {
			if ctx.Err() != nil || c.Most > 0 && time.Since(began) > c.Most {
				return nil
			}
			res, err := c.Run(ctx, p)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			c.Done(res)
			return nil
		})
	}
	return g.Wait()
}
