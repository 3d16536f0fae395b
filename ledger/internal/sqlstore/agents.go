package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

const (
	agentColumns = `p.agent, p.host, p.pid, p.version, p.kinds, p.started_at, p.seen_at, p.shard_index, p.shard_count, p.clock_skew, p.stalled, p.process, p.configs, p.plugins`

	beat = `INSERT INTO {{S}}.ledger_agents AS p (agent, host, pid, version, kinds, started_at, seen_at, expires_at, shard_index, shard_count, clock_skew, stalled, process, configs, plugins)
 SELECT $1, $2, $3, $4, $5, t.now, t.now, t.now + $6::interval, $7, $8, $9, $10, $11, $12, $13 FROM (SELECT {{NOW}} AS now) t WHERE true
 ON CONFLICT (agent) DO UPDATE SET started_at = CASE WHEN (p.host, p.pid, p.process) = (excluded.host, excluded.pid, excluded.process) THEN p.started_at ELSE excluded.started_at END,
 host = excluded.host, pid = excluded.pid, version = excluded.version, kinds = excluded.kinds, seen_at = excluded.seen_at, expires_at = excluded.expires_at,
 shard_index = excluded.shard_index, shard_count = excluded.shard_count, clock_skew = excluded.clock_skew, stalled = excluded.stalled, process = excluded.process, configs = excluded.configs, plugins = excluded.plugins`

	// forgetGone deletes programs whose heartbeat has run out, after some time, unless they still hold leases: the
	// holder of a lease without a heartbeat would look like a person. $1 is the time that they are kept, $2 how many, $3
	// the agent whose heartbeat it is.
	forgetGone = `DELETE FROM {{S}}.ledger_agents WHERE agent IN (
 SELECT p.agent FROM {{S}}.ledger_agents p WHERE p.expires_at <= (SELECT {{NOW}}) AND p.agent <> $3
 AND (NOT ` + recent + ` OR p.agent NOT IN (
  SELECT g.agent FROM {{S}}.ledger_agents g WHERE g.expires_at <= (SELECT {{NOW}}) ORDER BY g.expires_at DESC, g.agent LIMIT $2))
 AND NOT {{HOLDING}} FOR UPDATE OF p SKIP LOCKED)`

	// recent is the condition that a heartbeat is still running, or ran out less than $1 ago.
	recent = `p.expires_at > (SELECT {{NOW}} - $1::interval)`

	// living is the condition on heartbeats that have not run out.
	living = `p.expires_at > (SELECT {{NOW}})`
)

// Beat implements ledger.Store.
func (s Store) Beat(ctx context.Context, a ledger.Agent, ttl time.Duration) error {
	return s.db.Write(ctx, func(in Session) error {
		if ttl == 0 {
			return exec(in, `DELETE FROM {{S}}.ledger_agents WHERE agent = $1`, a.Name)
		}
		err := exec(in, beat, a.Name, a.Host, a.PID, a.Version, document(a.Kinds), ttl, a.Shard.Index, a.Shard.Count,
			a.Skew.Microseconds(), document(a.Stalled), a.Process, document(a.Configs), document(a.Plugins))
		if err != nil {
			return err
		}
		return exec(in, forgetGone, bounds.LapsedKept, bounds.LapsedMost, a.Name)
	})
}

// Agents implements ledger.Store.
func (s Store) Agents(ctx context.Context) ([]ledger.Agent, error) {
	return read(ctx, s, func(in Session) ([]ledger.Agent, error) { return agents(in, living) })
}

// Heartbeats implements ledger.Store.
func (s Store) Heartbeats(ctx context.Context) ([]ledger.Agent, error) {
	return soon(ctx, s, func(in Session) ([]ledger.Agent, error) { return agents(in, living+` OR {{HOLDING}}`) })
}

// Lapsed implements ledger.Store.
func (s Store) Lapsed(ctx context.Context) ([]ledger.Agent, error) {
	return read(ctx, s, func(in Session) ([]ledger.Agent, error) {
		return agents(in, `NOT `+living+` AND `+recent, bounds.LapsedKept)
	})
}

// Agents implements ledger.Tx.
func (t Tx) Agents() ([]ledger.Agent, error) { return agents(t.in, living) }

// EndBeat implements ledger.Tx.
func (t Tx) EndBeat(agent, process string) (same bool, err error) {
	return row(t.in,
		`UPDATE {{S}}.ledger_agents SET expires_at = least(expires_at, {{NOW}}) WHERE agent = $1 AND process = $2 RETURNING agent`,
		[]any{agent, process}, &agent)
}

func agents(in Session, condition string, args ...any) ([]ledger.Agent, error) {
	var a ledger.Agent
	var kinds, stalled, configs, plugins string
	var skew int64
	dest := []any{&a.Name, &a.Host, &a.PID, &a.Version, &kinds, &a.StartedAt, &a.SeenAt, &a.Shard.Index, &a.Shard.Count,
		&skew, &stalled, &a.Process, &configs, &plugins}
	return list(in, `SELECT `+agentColumns+` FROM {{S}}.ledger_agents p WHERE `+condition+` ORDER BY p.agent`, args, dest,
		func() (ledger.Agent, error) {
			a.Skew = time.Duration(skew) * time.Microsecond
			a.Kinds, a.Stalled, a.Configs, a.Plugins = nil, nil, nil, nil
			err := errors.Join(parse(kinds, &a.Kinds), parse(stalled, &a.Stalled), parse(configs, &a.Configs),
				parse(plugins, &a.Plugins))
			if err != nil {
				err = fmt.Errorf("what is kept of agent %s: %w", a.Name, err)
			}
			return a, err
		})
}
