package push

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/exampletest"
)

// naive is a job of the article: it picks a thousand of the list that have no mail of this push yet,
// sends theirs, and notes it. Between picking and sending it waits for a word, so that a test
// decides what comes in between.
func naive(address, content string) error {
	ctx := context.Background()
	db, err := open(address)
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx,
		`SELECT id FROM users WHERE id NOT IN (SELECT user_id FROM mails) ORDER BY random() LIMIT 1000`)
	if err != nil {
		return err
	}
	defer rows.Close()
	var picked []int
	for rows.Next() {
		var id int
		if err := rows.Scan(&id); err != nil {
			return err
		}
		picked = append(picked, id)
	}
	if err := rows.Close(); err != nil {
		return err
	}
	fmt.Println("picked", len(picked))
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	for _, id := range picked { // each is one mail
		if _, err := db.ExecContext(ctx, fmt.Sprintf(`INSERT INTO mails VALUES (%d, '%s')`, id, content)); err != nil {
			return err
		}
	}
	return nil
}

// TestNaive: two jobs in parallel, and some users get both mails.
func TestNaive(t *testing.T) {
	onBoth(t, func(t *testing.T, s *site) {
		s.exec(`CREATE TABLE users (id integer PRIMARY KEY)`, `CREATE TABLE mails (user_id integer, content text)`,
			`INSERT INTO users WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) SELECT i FROM n`)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), exampletest.Patience)
		defer cancel()
		var jobs []*exec.Cmd
		var words []io.Writer
		for _, content := range []string{"a", "b"} {
			job := exec.CommandContext(ctx, self, "naive", s.address, content)
			job.Stderr = os.Stderr
			in, errIn := job.StdinPipe()
			out, errOut := job.StdoutPipe()
			if errIn != nil || errOut != nil || job.Start() != nil {
				t.Fatal(errIn, errOut)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "picked 1000\n" {
				t.Fatal(line, err)
			}
			jobs, words = append(jobs, job), append(words, in)
		}
		for _, in := range words {
			if _, err := fmt.Fprintln(in, "go on"); err != nil {
				t.Fatal(err)
			}
		}
		for _, job := range jobs {
			if err := job.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		twice := s.number(`SELECT count(*) FROM (SELECT user_id FROM mails GROUP BY user_id HAVING count(*) > 1) x`)
		if twice == 0 {
			t.Error("no address got two mails: the bug is gone?")
		}
		t.Logf("%d users got two mails", twice)
	})
}

// In one database the lists have so many people; the later steps need only some of them.
func peopleCount() int {
	if n, err := strconv.Atoi(os.Getenv("LEDGERD_TEST_ROWS")); err == nil {
		return n
	}
	return 30_000
}

const some = 10_000

// peopled makes the users, and three lists of them, which overlap, name users twice, and together name
// all users. With apart the lists are in a database of their own.
func (s *site) peopled(apart bool, people int) (lists [3][]string) {
	s.t.Helper()
	at := s
	if s.other == "" && apart {
		at = newSite(s.t, "sqlite:"+filepath.Join(s.t.TempDir(), "users.db"), "")
	}
	at.exec(`DROP TABLE IF EXISTS users`, `CREATE TABLE users (id integer PRIMARY KEY, email text)`,
		fmt.Sprintf(`INSERT INTO users
 WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i, 'user' || i || '@example.com' FROM n`, people))
	for i := range lists {
		lists[i] = []string{"--from", s.file(fmt.Sprintf("list%d.sql", i), fmt.Sprintf(
			`SELECT id AS key, email AS "to" FROM users WHERE id %% 3 <> %d UNION ALL SELECT id, email FROM users WHERE id %% 7 = %d;`, i, i))}
		switch {
		case apart && s.other != "":
			lists[i] = append(lists[i], "--query-db", s.other)
		case apart:
			lists[i] = append(lists[i], "--query-db", at.address)
		}
	}
	return lists
}

// TestThreePushes: three processes add lists that overlap at the same time. No user is in the push
// twice, and the three together are all users. Then, with lists of the ledger's own database, a process that
// adds is killed again and again, and run again: the number of its items is still exact.
func TestThreePushes(t *testing.T) {
	for _, apart := range []bool{false, true} {
		t.Run(map[bool]string{false: "in one database", true: "from another database"}[apart], func(t *testing.T) {
			onBoth(t, func(t *testing.T, s *site) {
				people := peopleCount()
				if apart {
					people = some
				}
				lists := s.peopled(apart, people)
				s.run(0, nil, "db", "migrate")
				var wg sync.WaitGroup
				var got [3]added
				for i := range lists {
					wg.Go(func() {
						got[i] = s.add(append([]string{"--scope", "at-once", "--set", fmt.Sprintf("template=t%d", i)}, lists[i]...)...)
					})
				}
				wg.Wait()
				want := map[string]int{}
				sum := 0
				for i, a := range got {
					if a.Added+a.Known+a.Differs != a.Listed {
						t.Errorf("list %d: %+v", i, a)
					}
					sum += a.Added
					if a.Added > 0 {
						want[fmt.Sprintf("t%d", i)] = a.Added
					}
				}
				if d := cmp.Diff(want, s.byTemplate("at-once")); d != "" || sum != people {
					t.Errorf("%d items were added, want %d (-answered +counted)\n%s", sum, people, d)
				}
				if n := s.number(`SELECT count(DISTINCT key) FROM ledger_items WHERE scope = 'at-once'`); n != people {
					t.Errorf("%d different users, want %d", n, people)
				}
				if !apart {
					lists = s.peopled(apart, some)
					s.sampledAtOnce(lists[0])
					s.killed(lists, some)
				}
				s.run(0, nil, "db", "verify")
			})
		})
	}
}

// sampledAtOnce has three processes draw the same sample at the same time: it is one sample.
func (s *site) sampledAtOnce(list []string) {
	s.t.Helper()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			s.add(append([]string{"--scope", "one-sample", "--sample", "2000", "--seed", "1", "--set", "template=a"},
				list...)...)
		})
	}
	wg.Wait()
	if d := cmp.Diff(map[string]int{"a": 2000}, s.byTemplate("one-sample")); d != "" {
		s.t.Errorf("a sample drawn by three at once: -want +counted\n%s", d)
	}
}

// killed draws a sample, and adds the rest, with processes that are killed at random moments.
func (s *site) killed(lists [3][]string, people int) {
	s.t.Helper()
	add := func(args ...string) []string { return append([]string{"--scope", "killed"}, args...) }
	began := time.Now()
	s.add(append(add("--dry-run"), lists[0]...)...)
	took := time.Since(began)
	for _, step := range []struct {
		args []string
		want map[string]int
	}{
		{append(add("--sample", "1500", "--seed", "1", "--set", "template=a"), lists[0]...), map[string]int{"a": 1500}},
		{append(add("--sample", "1500", "--seed", "1", "--set", "template=b"), lists[1]...), map[string]int{"a": 1500,
			"b": 1500}},
		{append(add("--set", "template=c"), lists[2]...), nil},
	} {
		for range 2 {
			ctx, cancel := context.WithTimeout(s.t.Context(), rand.N(took+took/2)+time.Millisecond) // SIGKILL
			_ = s.ledgerd(ctx, append([]string{"add", "mail"}, step.args...)...).Run()
			cancel()
		}
		s.add(step.args...)
		if d := cmp.Diff(step.want, s.byTemplate("killed")); step.want != nil && d != "" {
			s.t.Errorf("-want +counted\n%s", d)
		}
	}
	s.add(append(add("--set", "template=c"), lists[0]...)...)
	if d := cmp.Diff(map[string]int{"a": 1500, "b": 1500, "c": people - 3000}, s.byTemplate("killed")); d != "" {
		s.t.Errorf("in the end: -want +counted\n%s", d)
	}
	if n := s.number(`SELECT count(DISTINCT key) FROM ledger_items WHERE scope = 'killed'`); n != people {
		s.t.Errorf("%d different users, want %d", n, people)
	}
}

// TestSend: two machines that share the mails by shards send each user exactly one.
func TestSend(t *testing.T) {
	onBoth(t, func(t *testing.T, s *site) {
		const n = 150
		s.exec(`CREATE TABLE users (id integer, email text)`, fmt.Sprintf(`INSERT INTO users
 WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i, 'user' || i || '@example.com' FROM n`, n),
			`INSERT INTO users VALUES (NULL, 'nobody@example.com'), (3, 'user3@example.com'), (999, NULL)`)
		list := s.file("all.sql", `SELECT id AS key, email AS "to" FROM users`)
		s.run(0, nil, "db", "migrate")
		var bad added
		s.run(3, &bad, "add", "mail", "--scope", "s", "--from", list, "--set", "template=a", "--sample", "40", "--seed", "1")
		if bad.Added != 40 || len(bad.BadLines) != 2 {
			t.Fatalf("%+v", bad)
		}
		s.run(3, &bad, "add", "mail", "--scope", "s", "--from", list, "--set", "template=b")
		if bad.Added != n-40 || len(bad.BadLines) != 2 || bad.Listed != n+1 {
			t.Fatalf("%+v", bad)
		}
		ctx, cancel := context.WithTimeout(t.Context(), exampletest.Patience)
		defer cancel()
		box := exec.CommandContext(ctx, programs.Path(t, "catcher"), "-port", "0")
		out, err := box.StdoutPipe()
		if err != nil || box.Start() != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		lines.Scan()
		_, server, _ := strings.Cut(lines.Text(), " on ")
		templates, err := filepath.Abs("templates")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var sent [2]struct{ Outcomes map[string]int }
		for i := range sent {
			wg.Go(func() {
				// 3: who is done first sees what is left of the other's part.
				s.runs([]int{0, 3}, &sent[i], "work", "--kind", "mail", "--drain", "--shard", fmt.Sprintf("%d/2", i), "--with",
					"server="+server,
					"--with", "from=expo@example.com", "--with", "tls=none", "--with", "templates="+templates)
			})
		}
		wg.Wait()
		mails := map[string]int{}
		for range n {
			if !lines.Scan() {
				break
			}
			mails[strings.Split(lines.Text(), "\t")[1]]++
		}
		_ = box.Process.Kill()
		for lines.Scan() {
			mails["too many: "+lines.Text()]++
		}
		_ = box.Wait()
		want := map[string]int{}
		for i := range n {
			want[fmt.Sprintf("user%d@example.com", i+1)] = 1
		}
		if d := cmp.Diff(want, mails); d != "" {
			t.Errorf("-want +received\n%s", d)
		}
		if a, b := sent[0].Outcomes["done"], sent[1].Outcomes["done"]; a == 0 || b == 0 || a+b != n {
			t.Errorf("the two machines sent %d and %d", a, b)
		}
	})
}
