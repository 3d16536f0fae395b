package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/inputs"
	"github.com/ledgerd/ledgerd/internal/query"
)

// queryFlags are the flags of a list that is a saved query.
type queryFlags struct {
	fromQuery    string
	queryDB      string
	queryTimeout duration
}

func (q *queryFlags) define(f *pflag.FlagSet) {
	f.StringVar(&q.fromQuery, "from-query", "", "`file` with one SELECT: column key is the INPUT, fingerprint, shard_key and priority are those of the item, the others are fields of the payload; a NULL is left out")
	f.StringVar(&q.queryDB, "query-db", "", "`URL` of the database of --from-query, which is only read (default: that of the ledger)")
	q.queryTimeout.Duration = time.Hour
	f.Var(&q.queryTimeout, "query-timeout", "how long --from-query may take")
	fromEnv(f, "query-db")
}

// openQuery reads the file of --from-query and prepares what is in it; nil without that flag.
func (a *app) openQuery(ctx context.Context, s sourceFlags) (*query.Query, error) {
	if s.fromQuery == "" {
		if s.queryDB != "" {
			return nil, usage("bad_flag", "name the file with the SELECT: --from-query FILE", "--query-db goes with --from-query")
		}
		return nil, nil
	}
	text, err := query.Read(s.fromQuery)
	if err != nil {
		return nil, queryError(err)
	}
	at, err := a.queryAddress(s)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.queryTimeout.Duration)
	defer cancel()
	var q *query.Query
	if at.path != "" {
		q, err = query.SQLite(ctx, at.path, s.fromQuery, text)
	} else {
		q, err = query.Postgres(ctx, at.url, s.fromQuery, text)
	}
	switch {
	case errors.Is(err, query.ErrUnreachable) && errors.Is(err, os.ErrNotExist):
		return nil, usage("no_query_db", "name the database with the tables of the query: --query-db URL", "%s does not exist", at)
	case errors.Is(err, query.ErrUnreachable):
		return nil, fail(exitTemporary, "unavailable", fmt.Sprintf("%s: %v", at, inputs.Redact(err.Error())), "nothing was lost; run the same command again")
	case err != nil:
		return nil, queryError(err)
	}
	q.Timeout = s.queryTimeout.Duration
	return q, nil
}

// queryAddress is the database of the query.
func (a *app) queryAddress(s sourceFlags) (address, error) {
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
