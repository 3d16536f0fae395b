package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
)

// A call is repeated until the ledger is available again. After reachTime its error is returned; an error that does not
// mean unavailable is returned at once.
func TestWhenReachable(t *testing.T) {
	away := &ledger.Error{Kind: ledger.ErrUnavailable, Message: "cannot reach it"}
	for name, tt := range map[string]struct {
		back time.Duration
		err  error
		took [2]time.Duration
		want error
	}{
		"at once":  {0, away, [2]time.Duration{0, 0}, nil},
		"a minute": {time.Minute, away, [2]time.Duration{time.Minute, time.Minute + reachPause}, nil},
		"never":    {time.Hour, away, [2]time.Duration{reachTime - reachPause, reachTime}, away},
		"denied":   {time.Hour, ledger.ErrDenied, [2]time.Duration{0, 0}, ledger.ErrDenied},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := WhenReachable(t.Context(), slog.New(slog.DiscardHandler), func() error {
					if time.Since(began) < tt.back {
						return tt.err
					}
					return nil
				})
				if took := time.Since(began); took < tt.took[0] || took > tt.took[1] {
					t.Errorf("it took %s", took)
				}
				if !errors.Is(err, tt.want) {
					t.Error(err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		began := time.Now()
		err := WhenReachable(ctx, slog.New(slog.DiscardHandler), func() error { return away })
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// The token is the content of its file without the space around it. A file that is too large is an error.
func TestTokenFile(t *testing.T) {
	a := &App{}
	a.tokenFile = filepath.Join(t.TempDir(), "token")
	for space, whole := range map[int]bool{0: true, maxTokenBytes - 5: true, maxTokenBytes - 4: false} {
		must.OK(t, os.WriteFile(a.tokenFile, []byte(strings.Repeat("\n", space)+"token"), 0o600))
		if got, err := a.token(); whole != (err == nil) || whole != (got == "token") {
			t.Errorf("after %d lines: %q, %v", space, got, err)
		}
	}
}

// If the ledger refuses the password, the hint also names where the URL is from. Another database, such as the target
// of a copy, has its URL from elsewhere. If rights are missing, only the hint and the act of the store help.
func TestDeniedPassword(t *testing.T) {
	const url, source, hint = "postgres://ann@db1/work", "LEDGERD_DB", "check both"
	at, err := ParseAddress(url, source)
	must.OK(t, err)
	for _, tt := range []struct {
		db, source string
		act        act.Name
		want       string
	}{
		{url, source, "", hint + "; the URL is from " + source + "; " + at.Secrecy()},
		{url, source, act.Examine, hint},
		{"postgres://ann@db2/work", source, "", hint},
		{"sqlite:a.db", source, "", hint},
		{"https://db1/ledger", source, "", hint},
		{"", "", "", hint},
	} {
		a := &App{DbSource: tt.source}
		a.Db, a.Config = tt.db, &config.Config{}
		err := a.ExplainOpen(at, (&ledger.Error{Kind: ledger.ErrDenied, Hint: hint}).By(tt.act))
		if got := failure.Explain(err); got.Hint != tt.want || got.Act.Name != tt.act {
			t.Errorf("the ledger is %q: %q, act %q, want %q, %q", tt.db, got.Hint, got.Act.Name, tt.want, tt.act)
		}
	}
}
