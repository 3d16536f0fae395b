package onemail

import (
	"net"
	"net/smtp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/exampletest"
)

var programs = exampletest.Build("github.com/ledgerd/ledgerd/cmd/ledgerd", "./catcher")

func TestMain(m *testing.M) { os.Exit(programs.Run(m)) }

// TestReadme runs the sessions of README.md as they stand there and compares what is printed. Before
// each of them the mail server is started as the text describes.
func TestReadme(t *testing.T) {
	home := programs.Home(t, "job.sh", "users.csv")
	home.Set("LEDGERD_DB", "sqlite:"+filepath.Join(home.Dir, "ledger.db"))
	port := "0" // any; after that the same port, since another server would be another setting
	catchers := [][]string{nil, {"-hang-up"}, nil}
	received := []map[string]int{
		{"ann@example.com": 1, "bob@example.com": 1}, {"ann@example.com": 1, "bob@example.com": 1}, {"bob@example.com": 1},
	}
	for i, session := range exampletest.Sessions(t, len(catchers)) {
		box := programs.Serve(t, "catcher", append(catchers[i], "-port", port)...)
		_, port, _ = net.SplitHostPort(box.Addr)
		home.Set("SMTP", box.Addr)
		home.Repeat(t, session)
		if diff := cmp.Diff(received[i], mails(t, box)); diff != "" {
			t.Errorf("session %d: -want +received\n%s", i+1, diff)
		}
	}
}

// mails ends a mail server, and counts the mails that it took, by recipient.
func mails(t *testing.T, box *exampletest.Server) map[string]int {
	t.Helper()
	const last = "last@example.com"
	// A catcher that hangs up also prints this mail.
	_ = smtp.SendMail(box.Addr, nil, "a@example.com", []string{last}, []byte("Subject: last\r\n\r\n"))
	count := map[string]int{}
	for {
		to := strings.Split(box.Next(t), "\t")[1]
		if to == last {
			break
		}
		count[to]++
	}
	for _, line := range box.End() {
		count["after the last: "+line]++
	}
	return count
}
