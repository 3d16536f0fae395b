package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ledgerd/ledgerd/internal/pgtest"
)

const conserved = "800.00 in all accounts, of 800.00; "

// The README's claim: four processes with four workers each lose or make money in the naive way. In
// the other ways they neither lose nor make any, nor overdraw an account.
func TestFourProcesses(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "transfers")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// A database for this test alone: locks of package txn hold in a whole database, and other tests use the same names.
	for kind, db := range map[string]string{"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "bank.db"),
		"postgres": pgtest.Database(t)} {
		do := func(args ...string) string {
			out, err := exec.Command(exe, append([]string{"-db", db}, args...)...).CombinedOutput()
			if err != nil {
				t.Errorf("%v: %v\n%s", args, err, out)
			}
			return string(out)
		}
		for _, way := range []string{"naive", "locks", "rows"} {
			if way == "rows" && kind == "sqlite" {
				continue
			}
			t.Run(kind+" "+way, func(t *testing.T) {
				do("open")
				const n = 100 // transfers of each worker; the naive way loses money with as many
				all := make([]string, 4)
				var wg sync.WaitGroup
				for i := range all {
					wg.Go(func() { all[i] = do("-way", way, "-n", fmt.Sprint(n), "work") })
				}
				wg.Wait()
				answered := 0
				for _, out := range all {
					var done, refused, repeated int
					if _, err := fmt.Sscanf(out, "%d transfers, %d refused, %d repeated", &done, &refused, &repeated); err != nil ||
						repeated != 0 {
						t.Errorf("%q: %v", out, err)
					}
					answered += done + refused
				}
				if answered != 16*n {
					t.Errorf("%d transfers were answered, of %d", answered, 16*n)
				}
				shown := do("show")
				t.Log(strings.TrimSpace(shown))
				if strings.HasPrefix(shown, conserved) != (way != "naive") || way != "naive" && strings.Contains(shown, "-") {
					t.Error(shown)
				}
			})
		}
	}
}
