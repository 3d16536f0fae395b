package sqlite_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/internal/stracetest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

func init() { childtest.Runs["durable"] = durableChild }

// durableChild adds, claims and finishes args[2] items in each of args[1] goroutines, and prints each answer as soon as
// it has it: from then on, a caller relies on it. It repeats calls that were unavailable, a few times. args[3] is
// "unsafe" for synchronous=NORMAL.
func durableChild(ctx context.Context, args []string) error {
	workers, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	s, err := sqlite.Open(ctx, args[0], sqlite.Options{Unsafe: args[3] == "unsafe"})
	if err != nil {
		return err
	}
	l := ledger.New(s, ledger.Options{})
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := 0; i < n && errs[w] == nil; i++ {
				errs[w] = insist(func() error { return workOne(ctx, l, fmt.Sprintf("item-%d-%d", w, i), os.Stdout) })
			}
		})
	}
	all.Wait()
	return errors.Join(append(errs, l.Close())...)
}

// insist repeats a call that was unavailable.
func insist(call func() error) (err error) {
	for range 5 {
		if err = call(); !errors.Is(err, ledger.ErrUnavailable) {
			return err
		}
		fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return err
}

// workOne adds an item and works one, and prints each answer.
func workOne(ctx context.Context, l *ledger.Ledger, key string, tell io.Writer) error {
	if _, err := l.Add(ctx, ledger.NewItem{Kind: "k", Key: key, Payload: []byte("add:" + key + ";")}); err != nil {
		return err
	}
	fmt.Fprintln(tell, "add:"+key+";")
	leases, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
	if err != nil || len(leases) == 0 { // items that were leased by a claim that returned an error stay leased
		return err
	}
	fmt.Fprintf(tell, "claim:%s;\n", leases[0].Key)
	mark := "end:" + leases[0].Key + ";"
	if err := l.Finish(ctx, ledger.Ending{Lease: leases[0], Result: ledger.Done([]byte(mark))})[0]; err != nil {
		return err
	}
	_, err = fmt.Fprintln(tell, mark)
	return err
}

// No caller gets the answer that something was added or finished before the disk has it: between the last write of the
// commit and the answer there is a successful fdatasync of the log. Concurrent operations share an fdatasync.
func TestDurableBeforeAnswer(t *testing.T) {
	for _, c := range []struct {
		mode           string
		workers, items int
		sound, alone   bool
	}{{"full", 1, 8, true, true}, {"full", 4, 6, true, false}, {"unsafe", 1, 8, false, true}} {
		t.Run(fmt.Sprint(c.mode, c.workers), func(t *testing.T) {
			child := childtest.New(t, "durable", newPath(t), fmt.Sprint(c.workers), fmt.Sprint(c.items), c.mode)
			trace := stracetest.Wrap(t, child.Cmd, "-s", "9000", "-e", "trace=write,pwrite64,fdatasync,fsync")
			child.Begin(t).Done(t)
			answers, early := orderOfAnswers(t, trace.Calls(t), c.alone)
			if want := 2 * c.workers * c.items; answers != want {
				t.Errorf("%d answers are in the trace, want %d", answers, want)
			}
			if (len(early) == 0) != c.sound {
				t.Errorf("answered before the disk had it: %d of %d: %q", len(early), answers, early)
			}
		})
	}
}

var mark = regexp.MustCompile(`(add|end):item-[0-9]+-[0-9]+;`)

// orderOfAnswers counts the answers in a trace and returns those given too early. alone means that the child does one
// operation at a time, so that at an answer nothing at all may be unsynced.
func orderOfAnswers(t *testing.T, calls []stracetest.Call, alone bool) (answers int, early []string) {
	t.Helper()
	written := map[string]int{} // mark → moment at which it was first written to the log
	lastWrite := -1
	var syncs []stracetest.Call
	for _, c := range calls {
		log := strings.Contains(c.Args[:min(len(c.Args), 300)], "ledger.db-wal>")
		switch {
		case c.Name == "pwrite64" && log:
			lastWrite = c.Returned
			for _, m := range mark.FindAllString(c.Args, -1) {
				if _, known := written[m]; !known {
					written[m] = c.Returned
				}
			}
		case strings.HasSuffix(c.Name, "sync") && log && c.Result == "0":
			syncs = append(syncs, c)
		case c.Name == "write" && strings.HasPrefix(c.Args, "1<"):
			m := mark.FindString(c.Args)
			if m == "" {
				continue
			}
			answers++
			from, known := written[m]
			if alone {
				from = lastWrite
			}
			if !known || !slices.ContainsFunc(syncs, func(s stracetest.Call) bool {
				return s.Begun > from && s.Returned < c.Begun
			}) {
				early = append(early, m)
			}
		}
	}
	return answers, early
}

var every = flag.Bool("every", false, "let every write and every sync fail in turn, not only some")

// chosen are the calls that fail in a short run: calls of opening, of commits and of closing.
var chosen = []int{2, 7, 12, 33}

// A write or a sync of the disk fails, once or always from then on. Each affected caller gets an error, nothing that
// was answered is lost, the file is sound, and the store works again when the disk does.
func TestDiskFails(t *testing.T) {
	for _, c := range []struct{ calls, fault, message string }{
		{"pwrite64", "ENOSPC", "the disk is full"},
		{"pwrite64", "EIO", "reports an error"},
		{"fdatasync,fsync", "EIO", "reports an error"},
	} {
		for _, lasting := range []string{"", "+"} {
			t.Run(c.calls+" "+c.fault+lasting, func(t *testing.T) {
				t.Parallel()
				ks := chosen
				if *every {
					ks = nil
					for k := range 500 {
						ks = append(ks, k+1)
					}
				}
				struck := 0
				for _, k := range ks {
					if !failAt(t, c.calls, fmt.Sprintf("error=%s:when=%d%s", c.fault, k, lasting), c.message) {
						break // there are no more calls than that
					}
					struck++
				}
				if t.Logf("struck %d times", struck); struck < 3 {
					t.Errorf("%d calls were struck, want 3 or more", struck)
				}
			})
		}
	}
}

// failAt runs the child with a fault and checks the file afterwards. It reports whether the fault occurred.
func failAt(t *testing.T, calls, fault, message string) (struck bool) {
	t.Helper()
	path, inject := newPath(t), calls+":"+fault
	child := childtest.New(t, "durable", path, "1", "6", "full")
	trace := stracetest.Wrap(t, child.Cmd, "-s", "0", "-e", "trace="+calls, "-e", "inject="+inject)
	child.Begin(t)
	answered := map[string]bool{}
	var told []string
	for child.Lines.Scan() {
		if text, failed := strings.CutPrefix(child.Lines.Text(), "error "); failed {
			told = append(told, text)
		} else {
			answered[child.Lines.Text()] = true
		}
	}
	err := child.Wait()
	if err != nil {
		told = append(told, strings.TrimSpace(child.Errs.String()))
	}
	if !slices.ContainsFunc(trace.Calls(t), stracetest.Call.Injected) {
		return false
	}
	for _, text := range told {
		if !strings.Contains(text, message) {
			t.Errorf("%s: printed %q, without %q", inject, text, message)
		}
	}
	if err == nil && len(answered) < 3*6-2 { // a lease may have been lost with its answer
		t.Errorf("%s: ended well with %d answers: %q", inject, len(answered), told)
	}
	soundAfter(t, inject, path, answered)
	return true
}

// soundAfter opens the file again and requires everything that was answered.
func soundAfter(t *testing.T, inject, path string, answered map[string]bool) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Errorf("%s: afterwards: %v", inject, err)
		return
	}
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	if got := value[string](t, database(t, path), "PRAGMA integrity_check"); got != "ok" {
		t.Errorf("%s: integrity: %s", inject, got)
	}
	verify(t, l)
	for answer := range answered {
		what, key, _ := strings.Cut(strings.TrimSuffix(answer, ";"), ":")
		it, err := l.Find(t.Context(), "k", "", key)
		if err != nil || what == "end" && it.State != ledger.StateDone || what == "claim" && it.State == ledger.StateReady {
			t.Errorf("%s: after the answer %q: %s, %v", inject, answer, it.State, err)
		}
	}
	if err := workOne(t.Context(), l, "item-after-it", io.Discard); err != nil {
		t.Errorf("%s: work afterwards: %v", inject, err)
	}
}
