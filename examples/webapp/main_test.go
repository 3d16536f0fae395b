package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/txn"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

func TestMain(m *testing.M) {
	if os.Getenv("WEBAPP") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The program ends with the reason if its file cannot be opened, or its port is taken.
func TestCannotStart(t *testing.T) {
	if l, err := net.Listen("tcp", "127.0.0.1:8080"); err == nil { // else another program has it
		defer l.Close()
	}
	for want, file := range map[string]string{"not a file": "webapp.db", "address already in use": "other"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "WEBAPP=yes")
		if err := os.Mkdir(filepath.Join(cmd.Dir, file), 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(text), want) || strings.Contains(string(text), "panic") {
			t.Errorf("%v, %s; want %s", err, text, want)
		}
	}
}

// From the form to the page: added, waiting for its retry, done; what cannot be sent is dead. An item that is refused
// takes the account with it.
func TestFromFormToPage(t *testing.T) {
	l := ledgertest.File(t)
	if _, err := l.DB.Exec(`CREATE TABLE account (mail TEXT PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(app{l.Ledger, txn.New(sqlite.DB(l.DB), txn.Config{})})
	defer server.Close()
	ask := func(mail string, status int, want ...string) {
		t.Helper()
		var res *http.Response
		var err error
		if mail == "" {
			res, err = http.Get(server.URL)
		} else {
			res, err = http.PostForm(server.URL, url.Values{"mail": {mail}})
		}
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != status {
			t.Errorf("status %d, %v", res.StatusCode, err)
		}
		for _, w := range want {
			if !strings.Contains(string(text), w) {
				t.Errorf("%q is missing in\n%s", w, text)
			}
		}
	}
	work := func() {
		ledgertest.RunDue(t, l.Ledger, map[string]worker.Handler{welcome.Name: welcome.Handler(send)})
	}
	ask("ada@example.com", http.StatusOK, "ada@example.com: ready")
	ask("nowhere", http.StatusOK, "nowhere: ready")
	ask("ada@example.com", http.StatusUnprocessableEntity, "UNIQUE")
	if _, err := l.Add(t.Context(), ledger.NewItem{Kind: welcome.Name, Key: "bob@example.com",
		Payload: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	ask("bob@example.com", http.StatusUnprocessableEntity) // another mail is known by this key
	var accounts int
	if err := l.DB.QueryRow(`SELECT count(*) FROM account`).Scan(&accounts); err != nil || accounts != 2 {
		t.Errorf("%d accounts, %v", accounts, err)
	}
	work()
	ask("", http.StatusOK, "ada@example.com: waiting (the mail server is busy)", "nowhere: dead (this is not an address)")
	l.Clock.Advance(2 * time.Second)
	work()
	ask("", http.StatusOK, "ada@example.com: done")
}
