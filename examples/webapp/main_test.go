package main

import (
	"database/sql"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/txn"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

func start(t *testing.T) (a app, l *ledgertest.Ledger) {
	l = ledgertest.File(t)
	if _, err := l.DB.Exec(`CREATE TABLE account (mail TEXT PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	return app{l.Ledger, txn.New(sqlite.DB(l.DB), txn.Config{})}, l
}

// From the form to the page: added, waiting for its retry, done; what cannot be sent is dead.
func TestFromFormToPage(t *testing.T) {
	a, l := start(t)
	server := httptest.NewServer(a)
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
	work()
	ask("", http.StatusOK, "ada@example.com: waiting (the mail server is busy)", "nowhere: dead (this is no address)")
	l.Clock.Advance(2 * time.Second)
	work()
	ask("", http.StatusOK, "ada@example.com: done")
}

// The account and the mail are there together, or neither is.
func TestTogether(t *testing.T) {
	a, l := start(t)
	tx, err := l.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ada := Welcome{To: "ada@example.com"}
	if _, err := welcome.AddTx(t.Context(), a.Ledger, sqlite.Wrap(tx), ada); err != nil {
		t.Fatal(err)
	}
	ledgertest.Added(t, a.Ledger, sqlite.Wrap(tx), welcome, ada)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	// An item that would be refused takes the account with it.
	if _, err := l.Add(t.Context(), ledger.NewItem{Kind: welcome.Name, Key: ada.To, Payload: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if err := a.signUp(t.Context(), ada.To); err == nil {
		t.Error("signed up with a mail that is known to be another")
	}
	var mail string
	if err := l.DB.QueryRow(`SELECT mail FROM account`).Scan(&mail); err != sql.ErrNoRows {
		t.Errorf("account %q, %v", mail, err)
	}
}
