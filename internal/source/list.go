package source

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/download"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

const (
	// fetchTime bounds the download of a list, maxList its bytes. Tests set other bounds in Config.
	fetchTime = 5 * time.Minute
	maxList   = 256 << 20
	// lineSettle is how long a list must not have changed before its last line is taken without a line end.
	lineSettle = 2 * time.Second
)

// list adds the lines of the file, or of the content of the URL.
func (s *Source) list(ctx context.Context, src *intake.Source, l *Look) error {
	if s.spec.URL == "" {
		src.From = s.spec.Path
		s.settling.begin()
		src.Unended = func() bool {
			info, err := os.Stat(s.spec.Path)
			return err != nil || !s.settling.settled(s.spec.Path, info)
		}
		err := s.take(ctx, src, l, nil)
		l.Young = s.settling.young
		return err
	}
	fetch, cancel := context.WithTimeout(ctx, s.config.fetchTime) // not for take: lines that came in time are added
	defer cancel()
	res, err := download.Get(fetch, s.spec.URL)
	if err != nil {
		return err
	}
	defer res.Close()
	body := &io.LimitedReader{R: res, N: s.config.maxList + 1}
	src.From, src.Stdin, src.Unended = intake.Stdin, body, func() bool { return body.N == 0 }
	err = s.take(ctx, src, l, nil)
	if body.N == 0 && err == nil {
		err = fmt.Errorf("%s has more than %d bytes; the rest was not read", redact.URL(s.spec.URL), s.config.maxList)
	}
	return err
}

// query adds the rows of the query.
func (s *Source) query(ctx context.Context, src *intake.Source, l *Look) error {
	q, err := s.config.Query(ctx)
	if err != nil {
		return err
	}
	defer q.Close()
	src.Query, src.Key = q, s.spec.Key
	byName := func(c query.Column) bool { return c.Name == intake.DefaultKey }
	if src.Key == "" && len(q.Columns) > 0 && !slices.ContainsFunc(q.Columns, byName) {
		src.Key = q.Columns[0].Name
	}
	if err := src.CheckQuery(); err != nil {
		return err
	}
	return s.take(ctx, src, l, nil)
}
