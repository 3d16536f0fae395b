package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// queryFlags are the flags of a list that is a saved query.
type queryFlags struct {
	queryDB      string
	queryTimeout duration
}

func (q *queryFlags) define(f *pflag.FlagSet) {
	f.StringVar(&q.queryDB, "query-db", "", "`URL` of the database of a SELECT, which is only read (default: that of the ledger)")
	q.queryTimeout.Duration = time.Hour
	f.Var(&q.queryTimeout, "query-timeout", "how long a SELECT may take")
	fromEnv(f, "query-db")
}

// openQuery reads the SELECT of --from and prepares it; nil if --from is none.
func (a *app) openQuery(ctx context.Context, s sourceFlags) (*query.Query, error) {
	_, _, _, file := s.list()
	switch {
	case file == "" && s.queryDB != "":
		return nil, usage("bad_flag", "name the file with the SELECT: --from FILE.sql", "--query-db goes with a SELECT")
	case file == "":
		return nil, nil
	}
	text, err := query.Read(file)
	if err != nil {
		return nil, queryError(err)
	}
	at, err := a.queryAddress(s)
	if err != nil {
		return nil, err
	}
	return prepareQuery(ctx, at, file, text, s.queryTimeout.Duration)
}

// prepareQuery connects to the database of a query; file is its name, for messages.
func prepareQuery(ctx context.Context, at dburl.Database, file, text string, timeout time.Duration) (*query.Query, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	q, err := at.Query(ctx, file, text)
	switch {
	case errors.Is(err, query.ErrUnreachable) && errors.Is(err, os.ErrNotExist):
		return nil, usage("no_query_db", "name the database with the tables of the query: --query-db URL", "%s does not exist", at)
	case errors.Is(err, query.ErrUnreachable):
		return nil, fail(exitTemporary, "unavailable", fmt.Sprintf("%s: %v", at, redact.Text(err.Error())), "nothing was lost; run the same command again")
	case err != nil:
		return nil, queryError(err)
	}
	q.Timeout = timeout
	return q, nil
}

// sourceQueryTimeout bounds a look at a source that is a query.
const sourceQueryTimeout = time.Hour

// querySource opens the query of a source, in its own database or the ledger's.
func (a *app) querySource(s *config.Source) func(context.Context) (*query.Query, error) {
	at, err := a.address()
	if s.QueryDB != "" {
		at, err = parseAddress(s.QueryDB, "query_db")
	}
	return func(ctx context.Context) (*query.Query, error) {
		if err != nil {
			return nil, err
		}
		text := strings.TrimRight(s.Query, " \t\r\n;")
		return prepareQuery(ctx, at, cmp.Or(s.QueryFile, "source "+s.Name), text, sourceQueryTimeout)
	}
}

// queryAddress is the database of the query.
func (a *app) queryAddress(s sourceFlags) (dburl.Database, error) {
	if s.queryDB == "" {
		return a.address()
	}
	return parseAddress(s.queryDB, "--query-db")
}

// queryError tells a person what is wrong with the query, and where.
func queryError(err error) error {
	bad, ok := errors.AsType[*query.Error](err)
	if !ok {
		return err
	}
	f := usage("bad_query", bad.Hint, "%s", bad.Error())
	if errors.Is(err, context.DeadlineExceeded) {
		f.exit, f.code = exitTemporary, "query_timeout"
	}
	f.cause = err
	return f
}
