// Command webapp signs people up: a form adds a row and an item in one transaction, a worker of the same program sends
// the mail, and a page shows how each stands. See docs/go.md.
package main

import (
	"context"
	"database/sql"
	"errors"
	"html/template"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/txn"
	"github.com/ledgerd/ledgerd/ledger/typed"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// Welcome is the mail to somebody new: once for each address.
type Welcome struct{ To string }

var welcome = typed.Kind[Welcome]{Name: "welcome", Key: func(w Welcome) string { return w.To }}

func send(ctx context.Context, w Welcome) error {
	if w.To == "nowhere" {
		return typed.Permanent(errors.New("this is not an address"))
	}
	if typed.Lease(ctx).First() {
		return typed.RetryAfter(2*time.Second, errors.New("the mail server is busy")) // as some are
	}
	typed.Logger(ctx).Info("sent", "to", w.To)
	return nil
}

type app struct {
	*ledger.Ledger
	*txn.Runner[*sql.Tx]
}

var page = template.Must(template.New("").Parse(`<form method=post><input name=mail><button>Sign up</button></form>
{{range $it, $err := .}}<p>{{if $err}}{{$err}}{{else}}{{$it.Key}}: {{$it.State}}{{with $it.Error}} ({{.}}){{end}}{{end}}</p>
{{end}}`))

func (a app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		if err := a.signUp(r.Context(), r.FormValue("mail")); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
	}
	page.Execute(w, a.List(r.Context(), ledger.Filter{Kinds: []string{welcome.Name}}, 0))
}

func (a app) signUp(ctx context.Context, mail string) error {
	return a.Run(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO account (mail) VALUES (?)`, mail); err != nil {
			return err
		}
		_, err := welcome.AddTx(ctx, a.Ledger, a.Conn(tx), Welcome{To: mail})
		return err
	})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	store, err := sqlite.Open(ctx, "webapp.db", sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	db, bad := sql.Open("sqlite", "webapp.db") // the tables of the ledger and of the program share a file
	_, missing := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS account (mail TEXT PRIMARY KEY)`)
	l := ledger.New(store, ledger.Options{})
	w, wrong := worker.New(worker.Config{Ledger: l, Handlers: map[string]worker.Handler{"welcome": welcome.Handler(send)}})
	at, taken := net.Listen("tcp", "127.0.0.1:8080")
	if err := errors.Join(bad, missing, wrong, taken); err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: app{l, txn.New(sqlite.DB(db), txn.Config{})}}
	go server.Serve(at)
	log.Print("http://", at.Addr())
	if err := errors.Join(w.Run(ctx), server.Shutdown(context.Background())); err != nil {
		log.Fatal(err)
	}
}
