// Package ledgers has what a ledger offers to the commands, wherever it is: over its database (a *ledger.Ledger) or
// over HTTP (a *remote.Ledger). Each method has the documentation of the one of *ledger.Ledger.
//
// Some acts need the database itself, so they are not here: transactions of one's own, locks, backups, checks, pruning.
package ledgers

import (
	"context"
	"iter"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/stats"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// Any is a ledger over its database or over HTTP.
type Any interface {
	worker.Ledger
	adding
	reading
	figures
	holding
	acting
	kinds
	Close() error
}

type adding interface {
	Add(ctx context.Context, items ...ledger.NewItem) ([]ledger.Added, error)
	Try(ctx context.Context, items ...ledger.NewItem) ([]ledger.Added, error)
	Known(ctx context.Context, keys ...ledger.Identity) ([]bool, error)
}

type reading interface {
	Get(ctx context.Context, id int64) (ledger.Item, error)
	Find(ctx context.Context, kind, scope, key string) (ledger.Item, error)
	List(ctx context.Context, f ledger.Filter, after int64) iter.Seq2[ledger.Item, error]
	Walk(ctx context.Context, w *ledger.Walk) iter.Seq2[ledger.Item, error]
	AttemptsBefore(ctx context.Context, id, before int64, limit int) ([]ledger.Attempt, error)
	LastOutput(ctx context.Context, id int64) ([]byte, error)
	Why(ctx context.Context, id int64) (ledger.Reason, error)
	Ended(ctx context.Context, q ledger.EndedQuery) ([]ledger.Ended, error)
	Recent(ctx context.Context, f ledger.Filter, n int) ([]ledger.Ended, error)
	Journal(ctx context.Context, q ledger.JournalQuery) ([]ledger.JournalEntry, error)
	JournalPart(ctx context.Context, q ledger.JournalQuery, within time.Duration) ([]ledger.JournalEntry,
		ledger.JournalQuery, error)
}

type figures interface {
	Now(ctx context.Context) (time.Time, error)
	Count(ctx context.Context, f ledger.Filter) (int64, error)
	CountUpTo(ctx context.Context, f ledger.Filter, most int64, within time.Duration) (n int64, whole bool, err error)
	Stats(ctx context.Context) (stats.Summary, error)
	Groups(ctx context.Context, f ledger.Filter, by string, within time.Duration) ([]stats.Group, bool, error)
	AttemptGroups(ctx context.Context, f ledger.Filter, by []string,
		within time.Duration) (ledger.AttemptCounts, time.Time, error)
	Standing(ctx context.Context, kind string) (stats.Standing, error)
}

type holding interface {
	Claim(ctx context.Context, c ledger.Claim) ([]*ledger.Lease, error)
	Lease(ctx context.Context, id, attempt int64) (*ledger.Lease, error)
	Holders(ctx context.Context, f ledger.Filter, take func(ledger.Item) bool) ([]ledger.Holder, error)
	Heartbeats(ctx context.Context) ([]ledger.Agent, error)
	Lapsed(ctx context.Context) ([]ledger.Agent, error)
	LeasedBy(ctx context.Context) (map[string]int64, error)
}

type acting interface {
	Retry(ctx context.Context, actor string, f ledger.Filter, how ...ledger.ActOption) (int64, error)
	Reopen(ctx context.Context, actor string, f ledger.Filter, how ...ledger.ActOption) (int64, error)
	Cancel(ctx context.Context, actor string, f ledger.Filter, how ...ledger.ActOption) (int64, error)
	ForceRelease(ctx context.Context, actor string, f ledger.Filter, how ...ledger.ActOption) (int64, error)
	Place(ctx context.Context, actor string, f ledger.Filter, priority int16, how ...ledger.ActOption) (int64, error)
	PutOff(ctx context.Context, actor string, f ledger.Filter, until time.Time, how ...ledger.ActOption) (int64, error)
	Forget(ctx context.Context, actor string, f ledger.Filter, how ...ledger.ActOption) (forgotten, left int64, err error)
	Decide(ctx context.Context, id int64, agent string, res ledger.Result) error
	DecideAll(ctx context.Context, agent string, f ledger.Filter, res ledger.Result,
		how ...ledger.ActOption) (int64, error)
}

type kinds interface {
	Kind(ctx context.Context, name string) (ledger.Kind, error)
	EditKind(ctx context.Context, actor, name string, edit func(k *ledger.Kind, known bool)) (ledger.Kind, error)
	Define(ctx context.Context, me ledger.Agent, kind, definition, config string) error
	Pauses(ctx context.Context, kinds ...ledger.Kind) (map[string]ledger.JournalEntry, error)
}

var _ Any = (*ledger.Ledger)(nil)
