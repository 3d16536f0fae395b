//go:build unix

// Command ledgerchaos runs ledgerd under faults and looks for broken promises; see internal/chaostest.
//
//	go run ./cmd/ledgerchaos -runs 10                         ten runs of every fault on both databases
//	go run ./cmd/ledgerchaos -db postgres -fault cut,crash    some of them
//	go run ./cmd/ledgerchaos -judge DIR                       checks again the files of a failed run
//
// If a promise was broken it exits 1 and prints the folder with the histories, logs and rows of the run. It exits 2
// if it could not run.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/internal/chaostest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	broken, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "ledgerchaos:", err)
		os.Exit(2)
	}
	if broken {
		os.Exit(1)
	}
}

// flags are the flags of the command line.
type flags struct {
	databases, faults string
	runs, parallel    int
	patience          int
	seed              uint64
	program, dir      string
	judge             string
	most              time.Duration
}

func run(ctx context.Context, args []string, out io.Writer) (broken bool, err error) {
	var f flags
	set := flag.NewFlagSet("ledgerchaos", flag.ContinueOnError)
	set.StringVar(&f.databases, "db", "sqlite,postgres", "`databases`")
	set.StringVar(&f.faults, "fault", "", "`faults`; empty: all that can happen on a database")
	set.IntVar(&f.runs, "runs", 1, "`number` of runs of each fault on each database")
	set.IntVar(&f.parallel, "parallel", 8, "`number` of runs at a time")
	set.IntVar(&f.patience, "patience", 1, "`factor` by which promises of bounded time are stretched, on a machine with "+
		"other load")
	set.Uint64Var(&f.seed, "seed", uint64(time.Now().UnixNano()), "`seed` of the first run; each run has the next number")
	set.StringVar(&f.program, "program", "", "`path` of a chaos build of ledgerd; empty: it is built")
	set.StringVar(&f.dir, "dir", filepath.Join(os.TempDir(), "ledgerd-chaos"),
		"`folder` for the files of runs; those of runs without violations are removed")
	set.StringVar(&f.judge, "judge", "", "`folder` of a run, whose files are checked again")
	set.DurationVar(&f.most, "most", 0, "begin no run after this `time`; 0: all")
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return false, nil
	case err != nil:
		return false, err
	}
	if f.judge != "" {
		res, err := chaostest.Judge(f.judge)
		if err != nil {
			return false, err
		}
		return report(out, res, f.judge), nil
	}
	plans, err := f.plans() // before the build, because it checks -db and -fault
	if err != nil {
		return false, err
	}
	if f.program == "" {
		if f.program, err = build(ctx, f.dir); err != nil {
			return false, err
		}
	}
	return f.runAll(ctx, plans, out)
}

// runAll makes the runs of a campaign.
func (f *flags) runAll(ctx context.Context, plans []chaostest.Plan, out io.Writer) (broken bool, err error) {
	var totals chaostest.Totals
	began := time.Now()
	c := chaostest.Campaign{Program: f.program, Dir: f.dir, Parallel: f.parallel, Most: f.most,
		Done: func(r chaostest.Result) {
			totals.Add(r)
			broken = report(out, r, filepath.Join(f.dir, r.Plan.String())) || broken
		}}
	err = c.Work(ctx, plans)
	fmt.Fprintf(out, "\n%v, first seed %d\n", time.Since(began).Round(time.Second), f.seed)
	return broken, cmp.Or(err, totals.Print(out))
}

// plans returns the runs to make. They are in rounds of all faults, so that an interrupted campaign has some of each.
func (f *flags) plans() (plans []chaostest.Plan, err error) {
	seed := f.seed
	for range f.runs {
		for name := range strings.SplitSeq(f.databases, ",") {
			db := chaostest.Database(name)
			faults := chaostest.Faults(db)
			if f.faults != "" {
				faults = nil
				for fault := range strings.SplitSeq(f.faults, ",") {
					faults = append(faults, chaostest.Fault(fault))
				}
			}
			for _, fault := range faults {
				p, err := chaostest.NewPlan(db, fault, seed)
				if err != nil {
					return nil, err
				}
				p.Patience = f.patience
				plans = append(plans, p)
				seed++
			}
		}
	}
	return plans, nil
}

// build makes a chaos build from the module around the working directory.
func build(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("ledgerchaos builds ledgerd from its source; run it there: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "ledgerd")
	return path, chaostest.Build(ctx, strings.TrimSpace(string(root)), path, chaostest.SkewableClock)
}

// report prints the result of a run and reports whether a promise was broken.
func report(out io.Writer, r chaostest.Result, dir string) bool {
	verdict := "ok"
	if why := r.Void(); why != "" {
		verdict = "void: " + why
	}
	if len(r.Violations) > 0 {
		verdict = fmt.Sprintf("%d VIOLATIONS, see %s", len(r.Violations), dir)
	}
	fmt.Fprintf(out, "%-28s daemons %d  items %4d  hits %3d  calls %5d  unanswered %3d  %4.1f s  %v  %s\n", r.Plan,
		r.Plan.Daemons, r.Completed, r.Hit, r.Calls, r.Unanswered, r.Seconds, r.Faults, verdict)
	for i, v := range r.Violations {
		if i == 10 {
			fmt.Fprintf(out, "    and %d more\n", len(r.Violations)-i)
			break
		}
		fmt.Fprintf(out, "    %v\n", v)
	}
	return len(r.Violations) > 0
}
