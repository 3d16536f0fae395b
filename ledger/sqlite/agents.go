package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// Beat implements ledger.Store. It also forgets other programs whose heartbeat ran out, once
// they hold no lease any more: until then their leases are not those of persons.
func (s *Store) Beat(ctx context.Context, a ledger.Agent, ttl time.Duration) error {
	work, err := json.Marshal(a.Kinds)
	if err != nil {
		return err
	}
	stalled, err := json.Marshal(a.Stalled)
	if err != nil {
		return err
	}
	configs, err := json.Marshal(a.Configs)
	if err != nil {
		return err
	}
	return s.write(ctx, false, func(t *turn) error {
		if ttl == 0 {
			_, err := t.exec(`DELETE FROM ledger_agents WHERE agent = ?1`, a.Name)
			return err
		}
		_, err := t.exec(`INSERT INTO ledger_agents (agent, host, pid, version, kinds, started_at, seen_at, expires_at, shard_index, shard_count, clock_skew, stalled, process, configs) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
 ON CONFLICT (agent) DO UPDATE SET host = ?2, pid = ?3, version = ?4, kinds = ?5, seen_at = ?6, expires_at = ?7, shard_index = ?8, shard_count = ?9, clock_skew = ?10, stalled = ?11, process = ?12, configs = ?13`,
			a.Name, a.Host, a.PID, a.Version, string(work), t.now, t.now.Add(ttl), a.Shard.Index, a.Shard.Count, a.Skew.Microseconds(), string(stalled), a.Process, string(configs))
		if err != nil {
			return err
		}
		_, err = t.exec(`DELETE FROM ledger_agents WHERE expires_at <= ?1
 AND NOT EXISTS (SELECT 1 FROM ledger_backlog b WHERE b.state = 2 AND b.locked_by = ledger_agents.agent)`, t.now)
		return err
	})
}

// Agents implements ledger.Store.
func (s *Store) Agents(ctx context.Context) (all []ledger.Agent, err error) {
	err = s.read(ctx, false, func(r session) error {
		all, err = agents(r, living, s.clock())
		return err
	})
	return all, err
}

// Journal implements ledger.Store.
func (s *Store) Journal(ctx context.Context, before int64, since time.Time, limit int) ([]ledger.JournalEntry, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	all := []ledger.JournalEntry{}
	err := s.read(ctx, false, func(r session) error {
		return r.query(`SELECT id, at, actor, action, subject, detail, changed FROM ledger_journal WHERE id < ?1 AND at >= ?2 ORDER BY id DESC LIMIT ?3`,
			func(r row) error {
				all = append(all, ledger.JournalEntry{ID: r.int(0), At: r.time(1), Actor: r.text(2), Action: r.text(3), Subject: r.text(4), Detail: r.text(5), Changed: r.int(6)})
				return nil
			}, before, since.UnixMicro(), limit)
	})
	return all, err
}

// Heartbeats implements ledger.Store.
func (s *Store) Heartbeats(ctx context.Context) (all []ledger.Agent, err error) {
	err = s.read(ctx, false, func(r session) error {
		all, err = agents(r, living+` OR EXISTS (SELECT 1 FROM ledger_backlog b WHERE b.state = 2 AND b.locked_by = ledger_agents.agent)`, s.clock())
		return err
	})
	return all, err
}

// EndBeat implements ledger.Tx.
func (x *tx) EndBeat(agent, process string) (bool, error) {
	if err := x.begin(); err != nil {
		return false, err
	}
	same := false
	err := x.session.query(`UPDATE ledger_agents SET expires_at = min(expires_at, ?3) WHERE agent = ?1 AND process = ?2 RETURNING 1`,
		func(row) error { same = true; return nil }, agent, process, x.now)
	return same, err
}

// living is the condition of heartbeats that have not run out.
const living = `expires_at > ?1`

func agents(s session, condition string, now time.Time) ([]ledger.Agent, error) {
	var all []ledger.Agent
	err := s.query(`SELECT agent, host, pid, version, kinds, started_at, seen_at, shard_index, shard_count, clock_skew, stalled, process, configs FROM ledger_agents WHERE `+condition+` ORDER BY agent`, func(r row) error {
		a := ledger.Agent{Name: r.text(0), Host: r.text(1), PID: int(r.int(2)), Version: r.text(3), StartedAt: r.time(5), SeenAt: r.time(6),
			Shard: ledger.Shard{Index: int(r.int(7)), Count: int(r.int(8))}, Skew: time.Duration(r.int(9)) * time.Microsecond, Process: r.text(11)}
		if err := json.Unmarshal([]byte(r.text(4)), &a.Kinds); err != nil {
			return fmt.Errorf("sqlite: kinds of agent %s: %w", a.Name, err)
		}
		if err := json.Unmarshal([]byte(r.text(10)), &a.Stalled); err != nil {
			return fmt.Errorf("sqlite: stalled kinds of agent %s: %w", a.Name, err)
		}
		if err := json.Unmarshal([]byte(r.text(12)), &a.Configs); err != nil {
			return fmt.Errorf("sqlite: settings of agent %s: %w", a.Name, err)
		}
		all = append(all, a)
		return nil
	}, now)
	return all, err
}
