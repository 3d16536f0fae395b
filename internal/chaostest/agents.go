//go:build unix

package chaostest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ledgerd/ledgerd/ledger"
)

// agent works through a process of ledgerd mcp, over its stdin and stdout, until the faults stop or the process ends.
type agent struct {
	r       *run
	process *daemon
	pipes   mcp.Transport // stdin and stdout of the process
	session *mcp.ClientSession
	random  *rand.Rand
	known   map[string]bool // tokens of items that this agent has begun
}

// startAgent starts an agent. In every second slot it has a fixed name, so after a kill its successor claims the same
// items again. In the other slots each agent is a new one.
func (r *run) startAgent(slot int, env []string) (*daemon, error) {
	args := []string{"mcp"}
	if slot%2 == 0 {
		args = append(args, "--agent", fmt.Sprint("agent-", slot))
	}
	cmd, err := r.command(slot, env, args...)
	if err != nil {
		return nil, err
	}
	cmd.Stdout = nil
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	d, err := startCmd(cmd)
	if err != nil {
		return nil, err
	}
	d.stdin = in
	if len(args) > 1 {
		d.agent = args[2]
	}
	a := &agent{
		r:       r,
		process: d,
		pipes:   &mcp.IOTransport{Reader: out, Writer: in},
		random:  r.plan.random(forAgents + uint64(r.processes)),
		known:   map[string]bool{},
	}
	r.driving.Go(func() {
		if err := a.work(); err != nil && !d.ended.Load() {
			r.late("agent", err)
		}
	})
	return d, nil
}

// strikeAgent kills an agent, freezes it beyond its lease, or closes its stream as a client does at its end.
func (r *run) strikeAgent(slot int, random *rand.Rand) error {
	switch d := r.daemons[slot]; random.IntN(5) {
	case 0, 1:
		return r.killOne(slot, random)
	case 2:
		if !d.gone() {
			r.count(r.plan.Fault)
		}
		d.ended.Store(true)
		d.stdin.Close() // the process may have ended
		select {
		case <-d.exited:
		case <-time.After(r.plan.bound(r.beyond() + stopTime)): // it may be frozen
		}
		if !d.gone() || !d.cmd.ProcessState.Success() {
			r.late(stopInTime, fmt.Errorf("an agent that closes its stream has %v", d.cmd.ProcessState))
		}
		return r.replace(slot)
	default:
		r.freeze(d, []int{d.cmd.Process.Pid})
		return nil
	}
}

// leasesOver waits until no agent holds a lease: a drain waits for live workers, but not for agents. The processes of
// the agents still run, and take back expired leases.
func (r *run) leasesOver(ctx context.Context) error {
	leased := ledger.Filter{States: []ledger.State{ledger.StateLeased}}
	tick := time.Tick(100 * time.Millisecond)
	for end := time.Now().Add(r.plan.bound(r.plan.Lease + recoverTime)); ; <-tick {
		n, err := r.client.Count(ctx, leased)
		if err != nil || n == 0 {
			return err
		}
		if time.Now().After(end) {
			r.late(takeBackInTime, fmt.Errorf("%d leases of agents did not end in time", n))
			return nil
		}
	}
}

// lease is an item that an agent holds.
type lease struct {
	ID, Attempt int64
	Kind, Key   string
	Token       string
	Resumed     bool
	Payload     payload
	Idempotency string `json:"idempotency_key"`
}

// reply is the answer of a tool.
type reply struct {
	Error *struct{ Code, Detail string }
	Data  struct{ Items []lease }
}

// work claims and works items until the faults stop. It returns an error if a call has no answer, or a wrong one.
func (a *agent) work() (err error) {
	c := mcp.NewClient(&mcp.Implementation{Name: "chaos", Version: "1"}, nil)
	ctx, end := context.WithTimeout(context.Background(), a.r.plan.bound(calmTime))
	defer end()
	if a.session, err = c.Connect(ctx, a.pipes, nil); err != nil {
		return err
	}
	for !a.r.calmed.Load() {
		ahead := a.random.IntN(3) == 0
		kind := a.r.plan.Kinds[a.random.IntN(len(a.r.plan.Kinds))]
		got, err := a.call("claim", map[string]any{"kind": kind, "limit": 1 + a.random.IntN(3), "ahead": ahead,
			"lease_s": a.r.plan.Lease.Seconds(), "wait_s": a.random.IntN(2)})
		if err != nil {
			return err
		}
		for _, it := range got.Data.Items {
			if err := a.workOn(it, ahead); err != nil {
				return err
			}
		}
	}
	return nil
}

// workOn works an item and reports the result.
func (a *agent) workOn(it lease, ahead bool) error {
	if ahead || it.Resumed {
		got, err := a.call("renew", map[string]any{"tokens": []string{it.Token}, "begin": true})
		if err != nil || got.Error != nil {
			return err // it was lost meanwhile
		}
	}
	in := it.Payload
	end := map[string]any{"token": it.Token, "output": in}
	if it.Resumed && !a.known[it.Token] && it.Kind == onceKind { // the previous agent may have done it
		end["outcome"] = ledger.OutcomeUnknown
		return a.finish(it, end)
	}
	a.known[it.Token] = true
	sleep(context.Background(), time.Duration(in.MS)*time.Millisecond)
	if in.Times == 0 || it.Attempt <= in.Times {
		switch in.How {
		case "fail":
			end["outcome"], end["code"], end["error"] = ledger.OutcomeFailed, "odd", "it is odd"
		case "permanent":
			end["outcome"], end["code"], end["final"] = ledger.OutcomeFailed, "bad", true
		case "doubt":
			end["outcome"] = ledger.OutcomeUnknown
		case "snooze":
			end["outcome"], end["delay_s"] = ledger.OutcomeSnoozed, .2
		case "skip":
			end["outcome"] = ledger.OutcomeSkipped
		case "emit":
			child := map[string]any{"kind": repeatableKind, "key": "child", "payload": payload{Name: "child", How: "done"}}
			if _, err := a.call("add", map[string]any{"items": []any{child}}); err != nil {
				return err
			}
		}
	}
	if err := a.r.effect(fmt.Sprintf("%s\t%d\t%s\t%s\n", it.Key, it.Attempt, it.Idempotency, in.How)); err != nil {
		return err
	}
	return a.finish(it, end)
}

// finish ends an attempt. It records a refusal for the checkers, since a refusal must come after the end of the lease.
func (a *agent) finish(it lease, end map[string]any) error {
	got, err := a.call("finish", end)
	if err != nil || got.Error == nil {
		return err
	}
	parts := strings.SplitN(it.Token, ".", 3)
	if _, err := uuid.Parse(parts[2]); err != nil {
		return err
	}
	a.r.history.Refused(it.ID, it.Attempt, parts[2])
	return nil
}

// call calls a tool, and repeats the call while a frozen process may lock the ledger.
func (a *agent) call(tool string, arguments map[string]any) (got reply, err error) {
	for range 10 {
		ctx, end := context.WithTimeout(context.Background(), a.r.plan.bound(calmTime))
		res, err := a.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
		end()
		if err != nil {
			return got, fmt.Errorf("%s: %w", tool, err)
		}
		got = reply{}
		text := res.Content[0].(*mcp.TextContent).Text
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			return got, fmt.Errorf("%s answers %s: %w", tool, text, err)
		}
		switch {
		case got.Error == nil, got.Error.Code == "lease_lost", got.Error.Code == "conflict":
			return got, nil
		case got.Error.Code != "unavailable":
			return got, fmt.Errorf("%s answers %s", tool, text)
		}
	}
	return got, fmt.Errorf("%s: the ledger is not there", tool)
}

// effect appends a line to the effects of the run, in one write.
func (r *run) effect(line string) error {
	f, err := os.OpenFile(r.path("effects"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.WriteString(f, line)
	return err
}
