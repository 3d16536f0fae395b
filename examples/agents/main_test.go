package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledgerd/internal/exampletest"
	"github.com/ledgerd/ledgerd/ledger"
)

// TestMain lets the test binary be the program, so that crawlers are processes of their own.
func TestMain(m *testing.M) {
	if os.Getenv("LEDGERD_TEST_CRAWLER") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "LEDGERD_TEST_CRAWLER=1")
	return cmd
}

// onBoth runs a test on a table of pages, on both databases.
func onBoth(t *testing.T, n int, test func(t *testing.T, db string)) {
	fill := func(t *testing.T, db string) string {
		t.Helper()
		if out, err := program(t, "-db", db, "-fill", fmt.Sprint(n)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return db
	}
	exampletest.Databases(t, func(t *testing.T, db string) { test(t, fill(t, db)) })
}

// crawlers runs four at once and counts how often each page was checked. The first is killed in the
// midst of its work.
func crawlers(t *testing.T, db string) map[string]int {
	t.Helper()
	type report struct {
		urls []string
		err  error
	}
	reports := make(chan report)
	for i := range 4 {
		cmd := program(t, "-db", db, "-agent", fmt.Sprint("crawler-", i))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			var r report
			for lines := bufio.NewScanner(out); lines.Scan(); {
				page, _, _ := strings.Cut(lines.Text(), " ")
				r.urls = append(r.urls, page)
				if i == 0 && len(r.urls) == 3 {
					_ = cmd.Process.Kill()
				}
			}
			if r.err = cmd.Wait(); i == 0 {
				r.err = nil
			}
			reports <- r
		}()
	}
	checked := map[string]int{}
	for range 4 {
		r := <-reports
		if r.err != nil {
			t.Error(r.err)
		}
		for _, u := range r.urls {
			checked[u]++
		}
	}
	return checked
}

func twice(checked map[string]int) (n int) {
	for _, times := range checked {
		if times > 1 {
			n++
		}
	}
	return n
}

// looksFirst lets two crawlers go on only after both have looked, and counts the pages that both check.
type looksFirst struct {
	ledger.Conn
	both    *sync.WaitGroup
	once    *sync.Once
	checked *sync.Map
	twice   *atomic.Int32
}

func (c looksFirst) Query(ctx context.Context, query string, args ...any) (ledger.Rows, error) {
	rows, err := c.Conn.Query(ctx, query, args...)
	c.once.Do(func() { c.both.Done(); c.both.Wait() })
	return rows, err
}

func (c looksFirst) Exec(ctx context.Context, statement string, args ...any) (int64, error) {
	n, err := c.Conn.Exec(ctx, statement, args...)
	if err == nil && strings.HasPrefix(statement, "UPDATE page SET status") {
		if _, before := c.checked.LoadOrStore(statement, true); before {
			c.twice.Add(1)
		}
	}
	return n, err
}

// TestNaive: two crawlers that select and then mark check the same pages if both select first.
func TestNaive(t *testing.T) {
	onBoth(t, 5, func(t *testing.T, url string) {
		both, checked, twice := new(sync.WaitGroup), new(sync.Map), new(atomic.Int32)
		both.Add(2)
		ended := make(chan error)
		for _, name := range []string{"ann", "bob"} {
			db, done, err := open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(done)
			go func() { ended <- crawlNaively(t.Context(), looksFirst{db, both, new(sync.Once), checked, twice}, name) }()
		}
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if n := twice.Load(); n != 5 {
			t.Errorf("%d of 5 pages were checked twice, want all", n)
		}
	})
}

// TestCrawlers: crawlers that claim check each page once. One dies, and its pages are checked by others.
func TestCrawlers(t *testing.T) {
	onBoth(t, 400, func(t *testing.T, db string) {
		checked := crawlers(t, db)
		if n := twice(checked); n > 0 {
			t.Errorf("%d pages were checked twice", n)
		}
		// The items that the killed one had finished without a report are still checked.
		if len(checked) < 399 {
			t.Errorf("%d of 400 pages were checked", len(checked))
		}
		out, err := program(t, "-db", db).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("something was left: %v %s", err, out)
		}
	})
}
