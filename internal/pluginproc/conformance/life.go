package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Times that the protocol promises.
const (
	orphanBound = 3 * time.Second
	drainBound  = 3 * time.Second
	stopBound   = 2 * time.Second // for an item that was told to end
)

func checkDrain(ctx context.Context, s *session) error {
	began := time.Now()
	s.Stop(ctx, 0)
	if ws, ok := s.State().Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return fmt.Errorf("it had to be ended with signal %d (%v)", int(ws.Signal()), ws.Signal())
	}
	if s.Err() != nil {
		return fmt.Errorf("it did not exit with 0: %w", s.Err())
	}
	if took := time.Since(began); took > s.target.bound(drainBound) {
		return fmt.Errorf("it was gone after %v", took)
	}
	return nil
}

func checkDrainInWork(ctx context.Context, s *session) error {
	const most = 100 // items that are sent
	var items []*wire.Item
	credits, err := s.stream.WaitCredits(ctx)
	if err != nil {
		return fmt.Errorf("it grants no credits: %w", s.why(err))
	}
	for len(items) < min(credits, most) {
		if k := len(s.d.Examples); k > 0 {
			items = append(items, s.example(s.d.Examples[len(items)%k]))
		} else {
			items = append(items, s.item(badPayload))
		}
	}
	if err := s.send(ctx, items...); err != nil {
		return err
	}
	unfinished := map[int64]bool{}
	for _, id := range s.Stop(ctx, 0) {
		unfinished[id] = true
	}
	for _, it := range items {
		if unfinished[it.Id] && !s.answered(s.tasks[it.Id]) {
			continue
		}
		r, err := s.result(it.Id)
		if err != nil {
			return err
		}
		if r.Outcome == wire.Result_OUTCOME_UNSPECIFIED {
			return fmt.Errorf("item %d has a result without an outcome", it.Id)
		}
	}
	return nil
}

// leaveTime is the grace for a plugin that has worked its examples.
const leaveTime = 5 * time.Second

func checkLeftBehind(ctx context.Context, s *session) error {
	if err := s.work(ctx, append(s.examples(), s.item(badPayload))...); err != nil {
		return err
	}
	s.Stop(ctx, leaveTime)
	if pids := s.Left(); len(pids) > 0 {
		return fmt.Errorf("processes that it had started were still there after its end, outside of its process group: %d",
			len(pids))
	}
	return nil
}

func checkOrphan(ctx context.Context, s *session) error {
	s.HangUp()
	select {
	case <-s.Done():
		return nil
	case <-time.After(s.target.bound(orphanBound)):
		return errors.New("it lives on after the end of stdin")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Bounds of checkSteady. A runtime with a garbage collector takes more memory for a while.
const (
	steadyItems  = 1000            // or as many as are done in steadyTime
	steadyTime   = 2 * time.Second // at least two rounds are done
	steadyRound  = 100             // items at a time
	steadyFiles  = 10              // more open files
	steadyMemory = 64 << 20        // more bytes
)

func checkSteady(ctx context.Context, s *session) error {
	if _, err := footprint(s.PID()); err != nil {
		return notChecked("this system does not say how much memory and how many files a process has")
	}
	var before usage
	began := time.Now()
	for n := 0; n < 2*steadyRound || n < steadyItems && time.Since(began) < steadyTime; n += steadyRound {
		var items []*wire.Item
		for i := range steadyRound {
			if k := len(s.d.Examples); k > 0 && i%10 != 0 {
				items = append(items, s.example(s.d.Examples[i%k]))
			} else {
				items = append(items, s.item(badPayload))
			}
		}
		if err := s.work(ctx, items...); err != nil {
			return err
		}
		if n == 0 { // the process is warm: it has loaded and allocated what every item needs
			var err error
			if before, err = footprint(s.PID()); err != nil {
				return err
			}
		}
	}
	after, err := footprint(s.PID())
	if err != nil {
		return err
	}
	if grown := after.files - before.files; grown > steadyFiles {
		return fmt.Errorf("it has %d more files open than after the first %d items", grown, steadyRound)
	}
	if grown := after.memory - before.memory; grown > steadyMemory {
		return fmt.Errorf("it has %d MiB more memory than after the first %d items", grown>>20, steadyRound)
	}
	return nil
}

// usage is what a process has.
type usage struct {
	files  int
	memory int64 // bytes that are resident
}

// footprint asks the system for the usage of a process; only Linux answers.
func footprint(pid int) (usage, error) {
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return usage{len(files), pluginproc.RSS(pid)}, err
}
