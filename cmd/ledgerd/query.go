package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/ledger"
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
func prepareQuery(ctx context.Context, at address, file, text string, timeout time.Duration) (*query.Query, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var q *query.Query
	var err error
	if at.path != "" {
		q, err = query.SQLite(ctx, at.path, file, text)
	} else {
		q, err = query.Postgres(ctx, at.url, file, text)
	}
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
func (a *app) queryAddress(s sourceFlags) (address, error) {
	if s.queryDB == "" {
		return a.address()
	}
	return parseAddress(s.queryDB, "--query-db")
}

// sameDatabase says whether what is at one address is at the other, for the same user.
func sameDatabase(a, b address) bool {
	if a.path != "" || b.path != "" {
		one, errOne := os.Stat(a.path)
		two, errTwo := os.Stat(b.path)
		return errOne == nil && errTwo == nil && os.SameFile(one, two)
	}
	one, errOne := pgx.ParseConfig(a.url)
	two, errTwo := pgx.ParseConfig(b.url)
	return errOne == nil && errTwo == nil && one.Host == two.Host && one.Port == two.Port && one.Database == two.Database &&
		one.User == two.User && maps.Equal(one.RuntimeParams, two.RuntimeParams)
}

// selection is the job as an INSERT … SELECT in the ledger's own database, if it can be one.
func (j *job) selection() (ledger.Selection, bool) {
	s := j.flags
	if j.source.Query == nil || j.ledger == nil || s.again != "" || s.every != "" || s.zone != "" || len(s.resource) > 0 {
		return ledger.Selection{}, false
	}
	at, err := j.app.queryAddress(s)
	if err != nil || !sameDatabase(at, j.ledger.address) {
		return ledger.Selection{}, false
	}
	sel, ok := j.source.Selection()
	sel.Try = s.dryRun
	return sel, ok
}

// runSelection adds a list without shipping its rows.
func (d *adder) runSelection(ctx context.Context, l *ledger.Ledger, sel ledger.Selection) error {
	q := d.source.Query
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	d.counts = map[ledger.Verdict]int64{}
	if d.draw != nil {
		sel.Sample, sel.Seed = d.draw.size, d.draw.seed
	}
	for first := true; ; first = false {
		got, err := l.AddSelect(ctx, sel)
		if bad, ok := errors.AsType[*ledger.QueryError](err); ok {
			e := &query.Error{File: q.File, Message: bad.Message, Err: err}
			if bad.Position > 0 {
				e.Line, e.Column = query.At(q.Text, bad.Position)
			}
			return queryError(e)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return queryError(&query.Error{File: q.File, Message: "took longer than --query-timeout", Err: err})
		}
		if err != nil {
			return err
		}
		d.counts[ledger.VerdictAdded] += got.Added
		if first {
			d.counts[ledger.VerdictKnown], d.counts[ledger.VerdictDiffers] = got.Known, got.Differs
			d.bad = got.BadRows
			for _, b := range got.Bad {
				d.badLines = append(d.badLines, badLine{q.File, int(b.Row), b.Reason})
			}
		}
		if d.draw == nil {
			return nil
		}
		if d.draw.listed = got.Rows - got.BadRows; got.Added == 0 || d.counts[ledger.VerdictAdded] >= int64(d.draw.want) || sel.Try {
			return nil
		} // others have added some of them meanwhile: the next ones
	}
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
