//go:build unix

// Command mutanttest proves that the tests find bugs. It plants bugs into ledgerd, each of which breaks an invariant,
// and demands that the campaign or test that is meant for it catches it.
//
//	go run ./internal/mutanttest                      all of them
//	go run ./internal/mutanttest -run by-id,^claim    those whose name matches one of these patterns
//	go run ./internal/mutanttest -list                prints them
//
// A planted bug is a patch: the compiler reads the patched file in place of the source file (go build -overlay).
// So the source does not change, and a patch that does not fit any more is an error. The
// test for a bug is first run without the patch and must find nothing. With the patch, a test must fail by
// its assertion, not because it does not compile or could not run; a campaign must find that
// a promise is broken that this bug breaks. The command exits 1 if a bug is not caught.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	survivors, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutanttest:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (survivors int, err error) {
	set := flag.NewFlagSet("mutanttest", flag.ContinueOnError)
	names := set.String("run", "", "`patterns` of names, with commas between them; empty: all bugs")
	list := set.Bool("list", false, "print the planted bugs")
	verbose := set.Bool("v", false, "print the output of failed tests, and the first broken promises of campaigns")
	parallel := set.Int("parallel", 3, "`number` of runs of a campaign at a time")
	if err := set.Parse(args); err != nil {
		return 0, err
	}
	chosen, err := choose(*names)
	if err != nil {
		return 0, err
	}
	if *list {
		return 0, printList(out, chosen)
	}
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return 0, fmt.Errorf("it builds ledgerd from its source; run it there: %w", err)
	}
	dir, err := os.MkdirTemp("", "ledgerd-mutants-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	b := &bench{root: strings.TrimSpace(string(root)), dir: dir, parallel: *parallel, sound: map[string]error{}}
	began := time.Now()
	for _, m := range chosen {
		r, err := b.try(ctx, m)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", m.name, err)
		}
		fmt.Fprintln(out, r)
		for _, c := range r.by {
			if *verbose && c.caught {
				fmt.Fprintln(out, c.output)
			}
		}
		if !r.caught {
			survivors++
		}
	}
	fmt.Fprintf(out, "\n%d planted, %d caught, %v\n", len(chosen), len(chosen)-survivors,
		time.Since(began).Round(time.Second))
	return survivors, nil
}

// choose finds the mutants whose names match one of the patterns.
func choose(patterns string) (chosen []mutant, err error) {
	found, err := regexp.Compile("(" + strings.ReplaceAll(patterns, ",", ")|(") + ")")
	if err != nil {
		return nil, err
	}
	for _, m := range mutants {
		if found.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no name matches %q; -list prints them", patterns)
	}
	return chosen, nil
}

func printList(out io.Writer, all []mutant) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, m := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", m.invariant, m.name, m.bug, m.origin)
	}
	return w.Flush()
}
