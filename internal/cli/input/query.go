package input

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// queryFlags are the flags of a list that is a saved query.
type queryFlags struct {
	queryDB string
}

func (q *queryFlags) define(f *pflag.FlagSet) {
	f.StringVar(&q.queryDB, "query-db", "", "`URL` of the database of a SELECT, which is only read (default: that of "+
		"the ledger)")
	app.FromEnv(f, "query-db")
}

// openQuery prepares the SELECT in the file of --from; nil if --from is no SELECT.
func openQuery(ctx context.Context, a *app.App, s SourceFlags) (*query.Query, error) {
	file := s.sqlFile()
	switch {
	case file == "" && s.queryDB != "":
		return nil, failure.Usage("bad_flag", "name the file with the SELECT: --from FILE.sql",
			"--query-db goes with a SELECT")
	case file == "":
		return nil, nil
	}
	text, err := query.Read(file)
	if err != nil {
		return nil, intake.QueryError(err)
	}
	at, err := queryDatabase(a, s.queryDB, "--query-db")
	if err != nil {
		return nil, err
	}
	return prepareQuery(ctx, at, file, text)
}

// queryDatabase returns the database at a URL, or that of the ledger if url is "". name names the setting in messages.
func queryDatabase(a *app.App, url, name string) (dburl.Database, error) {
	switch {
	case url == "" && dburl.IsRemote(a.Db):
		return nil, failure.Usage("no_query_db", "name the database with the tables of the query: "+name+" URL",
			"%s is the HTTP API of a ledger, and a SELECT needs a database", redact.Text(a.Db))
	case url == "":
		return a.Address()
	}
	return app.ParseAddress(url, name)
}

// prepareQuery connects to the database at and prepares a SELECT; file names it in messages.
func prepareQuery(ctx context.Context, at dburl.Database, file, text string) (*query.Query, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	q, err := at.Query(ctx, file, text)
	switch {
	case errors.Is(err, query.ErrUnreachable) && errors.Is(err, os.ErrNotExist):
		return nil, failure.Usage("no_query_db", "name the database with the tables of the query: --query-db URL",
			"%s does not exist", at)
	case errors.Is(err, query.ErrUnreachable):
		return nil, failure.New(failure.ExitTemporary, "unavailable", fmt.Sprintf("%s: %v", at, redact.Text(err.Error())),
			"nothing was lost; run the same command again")
	case err != nil:
		return nil, intake.QueryError(err)
	}
	q.Timeout = queryTimeout
	return q, nil
}

// queryTimeout bounds a SELECT.
const queryTimeout = time.Hour

// QuerySource returns a function that prepares the query of a source, in its own database or the ledger's.
func QuerySource(a *app.App, s *config.Source) func(context.Context) (*query.Query, error) {
	at, err := queryDatabase(a, s.QueryDB, "query_db")
	return func(ctx context.Context) (*query.Query, error) {
		if err != nil {
			return nil, err
		}
		text := strings.TrimRight(s.Query, " \t\r\n;")
		return prepareQuery(ctx, at, cmp.Or(s.QueryFile, "source "+s.Name), text)
	}
}
