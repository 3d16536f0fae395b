package onemail

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/ledgerd/ledgerd/internal/exampletest"
)

// openTable opens the application's own database.
func openTable(address string) (*sql.DB, error) {
	if path, ok := strings.CutPrefix(address, "sqlite:"); ok {
		return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)")
	}
	return sql.Open("pgx", address)
}

// naive is the job of the article: it checks whether the mail was sent, sends it, and notes that it was.
// Between the look and the rest it waits for a word, so that a test decides what comes in between.
func naive(address, server string) error {
	ctx := context.Background()
	db, err := openTable(address)
	if err != nil {
		return err
	}
	defer db.Close()
	var sent bool
	if err := db.QueryRowContext(ctx, "SELECT sent FROM reports WHERE customer = 'ann@example.com'").Scan(
		&sent); err != nil {
		return err
	}
	fmt.Println("sent:", sent)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil || sent {
		return err
	}
	mail := "To: ann@example.com\r\nSubject: Your report\r\n\r\nIt is ready.\r\n"
	if err := smtp.SendMail(server, nil, "reports@example.com", []string{"ann@example.com"}, []byte(mail)); err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "UPDATE reports SET sent = true WHERE customer = 'ann@example.com'")
	return err
}

// TestNaive: three environments, one database, three mails.
func TestNaive(t *testing.T) {
	databases(t, func(t *testing.T, address string) {
		box := listen(t)
		db, err := openTable(address)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for _, statement := range []string{
			"CREATE TABLE reports (customer text PRIMARY KEY, sent boolean NOT NULL)",
			"INSERT INTO reports VALUES ('ann@example.com', false)",
		} {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		var jobs []*exampletest.Program
		for range 3 {
			jobs = append(jobs, exampletest.Start(t, exec.Command(self, "naive", address, box.addr)))
		}
		for _, j := range jobs {
			if line, _ := j.Next(t); line != "sent: false" {
				t.Fatalf("%s\n%s", line, j.Stderr.String())
			}
		}
		for _, j := range jobs {
			if _, err := fmt.Fprintln(j.In, "go on"); err != nil {
				t.Fatal(err)
			}
		}
		for _, j := range jobs {
			j.End(t, 0)
		}
		if got := box.close(t); len(got) != 3 || perUser(got)["ann@example.com"] != 3 {
			t.Errorf("received %v: the bug is gone?", got)
		}
	})
}

// users writes a list of n users and returns its path.
func users(t *testing.T, n int) string {
	t.Helper()
	list := "user,to\n"
	for i := range n {
		list += fmt.Sprintf("%d,user%d@example.com\n", i, i)
	}
	path := filepath.Join(t.TempDir(), "users.csv")
	if err := os.WriteFile(path, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// with is the config of a sender.
func with(box *server) []string {
	return []string{"--with", "server=" + box.addr, "--with", "from=reports@example.com", "--with", "tls=none"}
}

// TestOneMail: three environments run the same job at the same instant, and one more later. Each user
// gets one mail.
func TestOneMail(t *testing.T) {
	databases(t, func(t *testing.T, address string) {
		const n = 5
		box := listen(t, "-delay", "20ms")
		job := append([]string{"run", "mail", "--scope", "report-2026-11", "--from", users(t, n), "--key", "user",
			"--set", "subject=Your report", "--set", "text=It is ready."}, with(box)...)
		ledgerd(t, address, "db", "migrate").End(t, 0)
		var jobs []*exampletest.Program
		for range 3 {
			jobs = append(jobs, ledgerd(t, address, job...))
		}
		for _, j := range jobs {
			j.End(t, 0)
		}
		if said := ledgerd(t, address, job...).End(t, 0); !strings.Contains(said, "known 5") {
			t.Errorf("later it printed %s", said)
		}
		// Another event is another mail.
		other := append([]string{"run", "mail", "--scope", "report-2026-12"}, job[4:]...)
		ledgerd(t, address, other...).End(t, 0)
		got := box.close(t)
		for user, count := range perUser(got) {
			if count != 2 {
				t.Errorf("%s got %d mails in two events", user, count)
			}
		}
		if len(got) != 2*n {
			t.Errorf("received %d mails, want %d", len(got), 2*n)
		}
		ledgerd(t, address, "db", "verify").End(t, 0)
	})
}

// item is the output of ls -o jsonl about one.
type item struct {
	ID         int64
	Key, State string
}

func items(t *testing.T, address string, args ...string) (all []item) {
	t.Helper()
	said := ledgerd(t, address, append([]string{"ls", "--kind", "mail", "--limit", "1000", "-o", "jsonl"},
		args...)...).End(t, 0)
	for line := range strings.Lines(said) {
		var it item
		if err := json.Unmarshal([]byte(line), &it); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if it.ID != 0 {
			all = append(all, it)
		}
	}
	return all
}

// TestKilledSenders: senders are killed at random moments, with mails in their hands. No user gets two
// mails, and only mails of unknown fate are in doubt. A person then looks into the mail server's log
// and decides, and each user has one.
func TestKilledSenders(t *testing.T) {
	databases(t, func(t *testing.T, address string) {
		const n, kills = 40, 3
		box := listen(t, "-delay", "100ms")
		ledgerd(t, address, "add", "mail", "--scope", "report-2026-11", "--from", users(t, n), "--key", "user",
			"--set", "subject=Your report", "--set", "text=It is ready.").End(t, 0)
		drain := append([]string{"work", "--drain", "--kind", "mail", "--lease", "5s", "-j", "4"}, with(box)...)
		senders := []*exampletest.Program{ledgerd(t, address, drain...), ledgerd(t, address, drain...)}
		for kill := range kills {
			for range 1 + rand.IntN(8) { // the moment is a mail that has just come, and not been answered
				box.await(t)
			}
			victim := rand.IntN(2)
			for i := range senders {
				if i == victim || kill == kills-1 { // in the end both; one of them has it
					senders[i].Kill()
					senders[i] = ledgerd(t, address, drain...)
				}
			}
		}
		for _, s := range senders {
			s.End(t, 0, 3)
		}
		done, doubtful := items(t, address, "--state", "done"), items(t, address, "--state", "doubt")
		if len(done)+len(doubtful) != n {
			t.Errorf("%d mails are done and %d in doubt, want %d in all", len(done), len(doubtful), n)
		}
		if len(doubtful) == 0 || len(doubtful) > (kills+1)*4 {
			t.Errorf("%d mails are in doubt after %d kills of senders of 4 mails at a time", len(doubtful), kills+1)
		}
		box.sync(t)
		count := perUser(box.got)
		for user, c := range count {
			if c > 1 {
				t.Errorf("%s got %d mails", user, c)
			}
		}
		for _, it := range done {
			if count["user"+it.Key+"@example.com"] != 1 {
				t.Errorf("user %s got no mail, and it is done", it.Key)
			}
		}
		decide(t, address, doubtful, count)
		ledgerd(t, address, drain...).End(t, 0)
		got := box.close(t)
		if len(got) != n || len(perUser(got)) != n {
			t.Errorf("in the end %d mails went to %d users, want %d", len(got), len(perUser(got)), n)
		}
		t.Logf("%d in doubt, of which %d had been received", len(doubtful), len(doubtful)-(n-len(count)))
		ledgerd(t, address, "db", "verify").End(t, 0)
	})
}

// decide does what a person does who has the mail server's log: what was received is done, the rest is
// sent once more.
func decide(t *testing.T, address string, doubtful []item, received map[string]int) {
	t.Helper()
	for _, it := range doubtful {
		decision := []string{"retry", fmt.Sprint(it.ID)}
		if received["user"+it.Key+"@example.com"] > 0 {
			decision = []string{"finish", fmt.Sprint(it.ID), "--agent", "carol"}
		}
		ledgerd(t, address, decision...).End(t, 0)
	}
}
