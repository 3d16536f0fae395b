// Command bench measures ledgerd beside its peers: the same work, on one Postgres and one disk, in
// alternating rounds of one run. It prints a table with medians, ranges and ratios, and for every
// target whether it is met. `make bench` runs all of it, on a Postgres of its own.
//
// A whole run also writes results.json, and makes chart.svg and the tables of docs/performance.md, HISTORY.md
// and README.md again from it. -render does the same without measuring.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/bench/internal/measure"
	"github.com/ledgerd/ledgerd/bench/internal/ours"
	"github.com/ledgerd/ledgerd/bench/internal/peers"
	"github.com/ledgerd/ledgerd/bench/internal/render"
	"github.com/ledgerd/ledgerd/bench/internal/setup"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	url := flag.String("postgres", os.Getenv("LEDGERD_TEST_POSTGRES"), "`URL` of a Postgres database in which schemas "+
		"may be made")
	dir := flag.String("dir", os.TempDir(), "`folder` for SQLite files, on the disk that Postgres is on")
	only := flag.String("only", "", "only the scenarios whose name matches `REGEXP`; -list lists them")
	rounds := flag.Int("rounds", 5, "rounds of each scenario; those that take long have fewer")
	scale := flag.Float64("scale", 1, "so many times the items")
	list := flag.Bool("list", false, "list the scenarios and end")
	again := flag.Bool("render", false, "measure nothing: make the chart and the tables again from results.json")
	out := flag.String("json", "", "write the results to this `file` too")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	switch {
	case err != nil:
		return err
	case *rounds < 1 || *scale <= 0 || flag.NArg() > 0:
		return errors.New("-rounds is at least 1, -scale above 0, and there are no other arguments")
	case *again:
		return render.Again()
	}
	s := &suite{Bench: &ours.Bench{Postgres: *url}, scale: *scale}
	if *list {
		for _, sc := range s.scenarios() {
			fmt.Printf("%-16s %s\n", sc.Name, sc.Title)
		}
		return nil
	}
	if *url == "" {
		return errors.New("-postgres URL, or run `make bench`, which starts one")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	r, err := s.run(ctx, *dir, pattern, *rounds)
	if err != nil {
		return err
	}
	r.Whole = *only == "" && *scale == 1 && *rounds >= 3 && r.About.InMemory == ""
	render.Text(os.Stdout, r)
	if *out != "" {
		if err := render.Write(*out, r); err != nil {
			return err
		}
	}
	if r.Whole {
		if err := render.Save(r); err != nil {
			return err
		}
	}
	return r.Err()
}

// run measures what the pattern asks for.
func (s *suite) run(ctx context.Context, parent string, pattern *regexp.Regexp, rounds int) (r *render.Report,
	err error) {
	if s.Dir, err = os.MkdirTemp(parent, "ledgerd-bench-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(s.Dir)
	if s.Programs, err = os.MkdirTemp("", "ledgerd-bench-programs-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(s.Programs)
	began := time.Now()
	r = &render.Report{Date: began.UTC().Format(time.DateOnly), Rounds: rounds, Scale: s.scale}
	if r.About, err = setup.Look(ctx, s.Postgres, s.Dir); err != nil {
		return nil, err
	}
	if err := setup.Programs(ctx, s.Programs); err != nil {
		return nil, err
	}
	if err := setup.Riversqlite(ctx, s.Programs, &r.About); err != nil {
		return nil, err
	}
	scenarios := slices.DeleteFunc(s.scenarios(), func(sc measure.Scenario) bool { return !pattern.MatchString(sc.Name) })
	if slices.ContainsFunc(scenarios, besideGraphile) {
		if err := setup.Graphile(ctx, s.Programs, &r.About); err != nil {
			return nil, err
		}
	}
	render.Header(os.Stderr, r)
	for _, sc := range scenarios {
		fmt.Fprintf(os.Stderr, "%s\n", sc.Name)
		result := measure.Run(ctx, sc, rounds, os.Stderr)
		r.Results = append(r.Results, result)
		fmt.Fprintf(os.Stderr, "  %.0f s %s\n", result.Seconds, result.Error)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// besideGraphile reports whether graphile-worker takes part.
func besideGraphile(sc measure.Scenario) bool {
	return slices.ContainsFunc(sc.Sides, func(side measure.Side) bool {
		return strings.HasPrefix(side.Name, peers.GraphileWorker)
	})
}

// count writes a number of items.
func count(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return strconv.Itoa(n/1_000_000) + " million"
	case n >= 10_000 && n%1000 == 0:
		return strconv.Itoa(n/1000) + ",000"
	case n >= 1000:
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	return strconv.Itoa(n)
}
