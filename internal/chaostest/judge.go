//go:build unix

package chaostest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/internal/historytest"
	"github.com/ledgerd/ledgerd/ledger"
)

// Result is the result of a run.
type Result struct {
	Plan       Plan
	Faults     map[string]int // how often each happened
	Completed  int            // items
	Hit        int            // attempts that a fault ended, and for some faults calls that it left without an answer
	Calls      int            // recorded in the histories
	Unanswered int            // calls whose outcome is unknown
	Unclear    int            // items that the second checker left out
	Repeated   int            // effects that came once more in a round
	Recovered  []float64      // seconds from the death of a worker until each of its items was free again
	Overtaking float64        // the longest time in seconds that later items overtook an item
	Seconds    float64        // duration of the run
	Violations []historytest.Violation
}

// Floor is the least number of items that a run must complete to count.
const Floor = 200

// Void returns why a run proves nothing, "" if it counts.
func (r Result) Void() string {
	switch {
	case r.Completed < Floor:
		return fmt.Sprintf("only %d items were completed", r.Completed)
	case r.Hit == 0:
		return "no fault hit work that was under way"
	case (r.Plan.Fault.remote() || r.Plan.Fault == Failover) && r.Faults[string(r.Plan.Fault)] == 0:
		return "no fault happened" // the hits come from a slow machine
	}
	return ""
}

// porcupineTime bounds the search for a valid order of the calls. A longer search fails the run.
const porcupineTime = time.Minute

// overtakingBound is how long an item may be overtaken. A process reads the whole index of ready items at least every
// 10 s (see positions in ledger/postgres), and a busy machine is slow at it. The longest time of all runs is among the
// figures.
const overtakingBound = 30 * time.Second

// Judge checks the files that a run left in a folder.
func Judge(dir string) (Result, error) {
	var l evidence
	text, err := os.ReadFile(filepath.Join(dir, evidenceFile))
	if err != nil {
		return Result{}, err
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return Result{}, err
	}
	run := &historytest.Run{Items: l.Items, Drains: l.Drains, Offset: l.Offset, Steady: l.Plan.Database == Postgres ||
		l.Plan.Fault != Clock}
	histories, err := filepath.Glob(filepath.Join(dir, "history-*"))
	if err != nil {
		return Result{}, err
	}
	for _, path := range histories {
		lines, err := history.Read(path)
		if err != nil {
			return Result{}, err
		}
		run.Lines = append(run.Lines, lines...)
	}
	if run.Effects, err = readEffects(filepath.Join(dir, "effects")); err != nil {
		return Result{}, err
	}
	res := Result{Plan: l.Plan, Faults: l.Faulted, Violations: l.Unkept, Calls: len(run.Lines) / 2,
		Unanswered: run.Unanswered(), Recovered: l.Moved}
	for i := range run.Items {
		it := &run.Items[i]
		if it.State() == ledger.StateDone {
			res.Completed++
		}
		if it.Kind == onceKind { // the evidence has no policies
			it.Policy = &ledger.Kind{OnLost: ledger.OnLostDoubt}
		}
	}
	for _, l := range run.Lines {
		if l.Op == history.OpPoint {
			res.Faults[pointPrefix+l.Agent]++
		}
	}
	linear, unclear := historytest.Linear(run, porcupineTime)
	effects, repeated := historytest.Effects(run)
	overtaking, most := historytest.Overtaking(run, overtakingBound)
	res.Violations = slices.Concat(res.Violations, historytest.Leases(run), linear, effects, historytest.Drains(run),
		overtaking)
	res.Unclear, res.Repeated, res.Overtaking = unclear, repeated, most.Seconds()
	res.recover(run, l)
	return res, nil
}

// recover counts the hits, and measures how long the items of dead workers stayed leased. The promise is the rest of
// their lease and 5 seconds, while any worker runs. It is checked in runs that kill one of several workers. In other
// runs all workers may be down or without a ledger at the same time.
func (res *Result) recover(run *historytest.Run, l evidence) {
	hits := map[[2]int64]bool{}
	for _, e := range l.Ended {
		at := e.At/1000 + l.Offset
		for i := range run.Items {
			for _, a := range run.Items[i].Attempts {
				if nameOf(a.Agent) != e.Agent || a.FinishedAt.UnixMicro() < at || a.LeasedAt.UnixMicro() > at ||
					!a.Outcome.TakenBack() {
					continue
				}
				hits[[2]int64{a.ItemID, a.Attempt}] = true
				if e.Paused || !run.Steady {
					continue
				}
				took := time.Duration(a.FinishedAt.UnixMicro()-at) * time.Microsecond
				res.Recovered = append(res.Recovered, took.Seconds())
				if res.Plan.Fault == Kill && res.Plan.Daemons > 1 && took > res.Plan.Lease+res.Plan.bound(recoverTime) {
					res.Violations = append(res.Violations, historytest.Violation{Rule: takeBackInTime, Item: a.ItemID,
						Text: fmt.Sprintf("its worker died, and it took %v to take it back", took)})
				}
			}
		}
	}
	for i := range run.Items {
		for _, a := range run.Items[i].Attempts {
			if a.Outcome == ledger.OutcomeCrashed || a.Outcome == ledger.OutcomeUnknown || a.Code == "timeout" {
				hits[[2]int64{a.ItemID, a.Attempt}] = true
			}
		}
	}
	res.Hit = len(hits)
	if res.Plan.Fault == RemoteCut {
		res.Hit += res.Faults[string(RemoteCut)]
	}
	if f := res.Plan.Fault; f != Kill && f != Pause && f != Clock && f != Agents {
		res.Hit += res.Unanswered
	}
}

// readEffects reads the effects of plugins: key, attempt and idempotency key of each.
func readEffects(path string) (effects []historytest.Effect, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 4 {
			return nil, fmt.Errorf("%s: %q is not an effect", path, line)
		}
		attempt, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		effects = append(effects, historytest.Effect{Key: fields[0], Attempt: attempt, IdempotencyKey: fields[2]})
	}
	return effects, nil
}
