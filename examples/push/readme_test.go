package push

import (
	"database/sql"
	"os"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/ledgerd/ledgerd/internal/exampletest"
	_ "github.com/ledgerd/ledgerd/ledger/sqlite" // the driver
)

// programs are ledgerd and a mail server.
var programs = exampletest.Build("github.com/ledgerd/ledgerd/cmd/ledgerd",
	"github.com/ledgerd/ledgerd/examples/one-mail/catcher")

func TestMain(m *testing.M) { os.Exit(programs.Run(m)) }

// TestReadme runs the sessions of README.md as they stand there and compares what is printed. After the second one, on
// SQLite, two machines send the mails, as the text tells: each user gets one.
func TestReadme(t *testing.T) {
	exampletest.Databases(t, func(t *testing.T, address string) {
		fill(t, address)
		home := programs.Home(t, "lists", "templates", "send.sh")
		home.Set("LEDGERD_DB", address)
		home.Sh("ledgerd db migrate")
		for i, session := range exampletest.Sessions(t, 3) {
			home.Repeat(t, session)
			if i == 1 && strings.HasPrefix(address, "sqlite:") {
				send(t, home)
			}
		}
	})
}

// fill makes the table of users.
func fill(t *testing.T, address string) {
	t.Helper()
	driver, at := "pgx", address
	if path, ok := strings.CutPrefix(address, "sqlite:"); ok {
		driver, at = "sqlite", path
	}
	db, err := sql.Open(driver, at)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	users, err := os.ReadFile("users.sql")
	if err != nil {
		t.Fatal(err)
	}
	for statement := range strings.SplitSeq(string(users), ";\n") {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// send sends the 2,000 mails by two machines.
func send(t *testing.T, home *exampletest.Home) {
	t.Helper()
	box := programs.Serve(t, "catcher", "-port", "0")
	home.Set("SMTP", box.Addr)
	said := home.Sh("./send.sh 0/2 & ./send.sh 1/2 & wait")
	got := map[string]int{}
	for range 2000 {
		got[strings.Split(box.Next(t), "\t")[1]]++
	}
	if more := box.End(); len(got) != 2000 || len(more) > 0 {
		t.Errorf("%d users got mails, and then came %q\n%s", len(got), more, said)
	}
}
