package ledger

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger/health"
	"github.com/ledgerd/ledgerd/ledger/invariant"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Store keeps a ledger in a database. The tests of package storetest describe what a store must do.
//
// A store decides nothing: [Store.Update] passes locked records to the rules of this package, and writes the changes
// that they return. Claim, Complete, Renew, Start and Promote are the hot path: each is one statement, or one short
// transaction, of the store.
//
// Errors: a database that cannot be reached, is busy past the deadline or is full matches ErrUnavailable. After it the
// caller may not know whether a commit took effect, so every operation is safe to repeat.
type Store interface {
	LockStore
	queue
	reader
	statistics
	registry
	tallies
	administration
	hints
}

// queue leases ready items and ends leases: the hot path of every worker.
type queue interface {
	// Claim leases up to g.Limit ready items of one kind that is not paused, in the order (priority, due, id), and
	// returns their records after that. If the first item is Alone it is the only one; otherwise the list ends before
	// the first item that is Alone. With g.Resume, the leases that the agent has of the kind come first: extended, with
	// their old lock_id.
	//
	// For a kind with limits it leases what scheduler.Limits.Admit grants, one claim at a time in all processes. It
	// reads the limits, and the leases that count for them, as committed before it began.
	Claim(ctx context.Context, g Grant) (Claimed, error)
	// Complete ends leases as done or skipped and returns the ids of the items that it completed. These have the given
	// lock_id, are not recurring, are not failing (see Outage), and are to be neither reopened nor cancelled.
	Complete(ctx context.Context, conn Conn, c []Completion) (completed []int64, err error)
	// CompleteAndClaim is Complete and then Claim, in one transaction. After an error neither has taken effect; after
	// ErrUnavailable either both have or neither. It claims even if some items were not completed. If the kind cannot
	// be claimed in this way, it only completes, and got.More is true, also with an error.
	CompleteAndClaim(ctx context.Context, c []Completion, g Grant) (completed []int64, got Claimed, err error)
	// Renew moves the expiry of leases, of different items, to now + ttl. It skips rows that another transaction has
	// locked, so an item that is missing from the answer may still be leased.
	Renew(ctx context.Context, ttl time.Duration, leases []LeaseRef) ([]Renewal, error)
	// Holders returns the leases of the given items that are leased.
	Holders(ctx context.Context, ids []int64) ([]Renewal, error)
	// Leased returns the records of the given items that are leased, with these fields only: identity, Every and Zone;
	// State, Epoch, Attempt, Agent, LockID, LeasedAt, ExpiresAt, Alone and Due of Work.
	Leased(ctx context.Context, ids []int64) ([]Record, error)
	// Start marks leases, of different items, as started and moves their expiry to now + ttl. It returns the ids of the
	// items that are still leased under this lock_id and are not to be cancelled.
	Start(ctx context.Context, ttl time.Duration, leases []LeaseRef) (started []int64, err error)
	// Promote makes up to limit waiting items ready that are due, of the longest overdue kinds first. It returns the kinds
	// of these items, and the earliest due time of the items that still wait (zero: none).
	Promote(ctx context.Context, limit int) (kinds []string, next time.Time, err error)
}

// reader reads items and their attempts.
type reader interface {
	// Records returns records by id, see RecordQuery. With any filter, it reads only items whose ids are between
	// Filter.Above and Filter.UpTo.
	Records(ctx context.Context, q RecordQuery) ([]Record, error)
	// Count counts the items that match f.
	Count(ctx context.Context, f Filter) (int64, error)
	// CountRounds counts the items that match, at one moment, by a column (ByKind, ByScope, ByShardKey or ByPayload of
	// package stats) and the state of their round, in no order. It stops at an error of each and returns it.
	CountRounds(ctx context.Context, f Filter, column string, each func(RoundCount) error) error
	// Known reports for each identity whether there is such an item.
	Known(ctx context.Context, keys []Identity) ([]bool, error)
	// Scopes returns up to limit scopes in which there are items of a kind, in order. It reads little more than
	// one row for each, however many items there are.
	Scopes(ctx context.Context, kind string, limit int) ([]string, error)
	// Recurring returns the kinds that have recurring items, by name. It reads one row for each kind.
	Recurring(ctx context.Context) ([]string, error)
	// Attempts returns the ended attempts of an item, oldest first.
	Attempts(ctx context.Context, id int64) ([]Attempt, error)
	// AttemptsBefore returns up to limit ended attempts of an item, newest first: those with a number below before, or
	// all if before is 0.
	AttemptsBefore(ctx context.Context, id, before int64, limit int) ([]Attempt, error)
	// LastOutput returns the output of the newest attempt of an item that completed a round; nil if there is none.
	LastOutput(ctx context.Context, id int64) ([]byte, error)
	// Ended returns attempts by when they ended, then by item and number, see EndedQuery. It reads by indexes, so its
	// cost does not grow with the number of attempts. It leaves Round empty.
	Ended(ctx context.Context, q EndedQuery) ([]Ended, error)
}

// statistics counts unfinished items, and those that are held back.
type statistics interface {
	// Standing counts the unfinished items of a kind, or of a shard of it, from one snapshot.
	Standing(ctx context.Context, kind string, part scheduler.Shard) (stats.Standing, error)
	// Counts counts the backlog, and the attempts that ended since the given time, by kind.
	Counts(ctx context.Context, since time.Time) ([]stats.Counts, error)
	// Ahead counts the ready items of the record's kind that a claim takes before it, up to limit. If Policy has limits
	// by shard key, it counts only items of the record's shard key.
	Ahead(ctx context.Context, r *Record, limit int) (int64, error)
	// LimitUsage returns how much of the limits of a kind is used, in all and for a shard key, and the time.
	LimitUsage(ctx context.Context, kind, key string) (scheduler.Usage, error)
}

// registry keeps the kinds, the agents and the journal of what operators did.
type registry interface {
	// Kinds returns the kinds with these names, or all kinds without names, by name.
	Kinds(ctx context.Context, names ...string) ([]Kind, error)
	// Beat writes the heartbeat of an agent that is a program; ttl 0 removes it. The start time of the program stays,
	// unless the earlier heartbeat was of another process.
	Beat(ctx context.Context, a Agent, ttl time.Duration) error
	// Agents returns the agents whose heartbeat has not run out.
	Agents(ctx context.Context) ([]Agent, error)
	// Heartbeats returns Agents, and the agents that hold leases though their heartbeat has run out.
	Heartbeats(ctx context.Context) ([]Agent, error)
	// Lapsed returns the agents whose heartbeat has run out within bounds.LapsedKept and was not removed, by name. Beat
	// forgets older ones, and all above the newest bounds.LapsedMost, unless they hold leases.
	Lapsed(ctx context.Context) ([]Agent, error)
	// LeasedBy counts the leased items of each agent.
	LeasedBy(ctx context.Context) (map[string]int64, error)
	// Journal returns up to limit entries of the journal, newest first: those with an id below before; before 0 is
	// no bound.
	Journal(ctx context.Context, before int64, limit int) ([]JournalEntry, error)
}

// tallies keeps how many attempts ended, by minute and by hour.
type tallies interface {
	// AddTallies adds the counts to those stored for the same minute, kind and agent. A repeated call adds twice.
	AddTallies(ctx context.Context, tallies []stats.Minute) error
	// Tallies returns the sums over all agents of the minutes from since on, by time and kind.
	Tallies(ctx context.Context, since time.Time) ([]stats.Minute, error)
	// ForgetTallies removes the minutes before a time.
	ForgetTallies(ctx context.Context, before time.Time) error
}

// administration looks after the database as a whole.
type administration interface {
	// Schema reads the version of the tables, the floors and the environment. A store without tables has no version.
	Schema(ctx context.Context) (Schema, error)
	// Home returns the place where the database keeps the ledger, in words; "" if it is not known.
	Home(ctx context.Context) (string, error)
	// Opened returns the floors and the environment that the ledger had when it was opened, and where it is.
	Opened() Schema
	// Now returns the time of the database's clock.
	Now(ctx context.Context) (time.Time, error)
	// Prune prunes up to limit items of the kind whose newest attempt is final and ended before the given time. It
	// removes output, log and error, and all attempts but the newest, and empties the payload if there is one. Of a
	// recurring item it removes the attempts before the newest completion that ended before the time, or else before the
	// newest final attempt that did. It returns how many items it pruned.
	Prune(ctx context.Context, kind string, before time.Time, limit int) (int, error)
	// Audit returns up to limit records with id > after and their attempts, from one snapshot.
	Audit(ctx context.Context, after int64, limit int) ([]Audited, error)
	// Orphans returns rows without an item, and rows that limits count wrongly, at most limit of each sort.
	Orphans(ctx context.Context, limit int) (invariant.Orphans, error)
	// Close waits for running calls and frees what the store opened.
	Close() error
}

// hints tells other processes that items may be ready. A hint may get lost; only the database is reliable.
type hints interface {
	// Watch calls wake whenever another process may have made items of a kind ready ("" means any kind), until ctx
	// ends. Calls may be missing. A store without hints only waits for ctx.
	Watch(ctx context.Context, wake func(kind string))
	// Announce sends hints to the watchers of other processes. It does not wait, and may send several as one.
	Announce(kinds ...string)
}

// Tx is a write transaction as rules see it.
type Tx interface {
	itemTx
	leaseTx
	kindTx
	lockTx
	floorTx
}

// itemTx reads and changes items.
type itemTx interface {
	// Now returns the time of the database's clock, the same in the whole transaction.
	Now() time.Time
	// Insert adds the items whose identity is not known and returns an id per item, 0 for the known ones. Identities
	// within one call are distinct. Record.ID is ignored, CreatedAt is the database's now; a zero Work.Due means now.
	Insert(items []Record) ([]int64, error)
	// Load locks and returns the records with these ids, in id order; missing ids are left out.
	Load(ids []int64) ([]Record, error)
	// LoadKeys is Load by identity.
	LoadKeys(ids []Identity) ([]Record, error)
	// Outputs returns, by item, the output of the newest attempt that has one, of the items with these ids.
	Outputs(ids []int64) (map[int64][]byte, error)
	// Attempts returns the attempts of one item with at least this number, oldest first.
	Attempts(id, from int64) ([]Attempt, error)
	// Apply writes changes, each of a record that was loaded in this transaction.
	Apply(changes []Change) error
}

// leaseTx finds the leases to end, and releases what depends on their agents.
type leaseTx interface {
	// LoadExpired locks and returns up to limit records whose lease has expired, longest ago first. It skips rows that
	// another transaction has locked. Fewer than limit does not mean that there are no more.
	LoadExpired(limit int) ([]Record, error)
	// LoadLeased is LoadExpired for the leases of an agent, expired or not; "" means all agents.
	LoadLeased(agent string, limit int) ([]Record, error)
	// EndBeat ends the heartbeat of an agent now if it belongs to that process, and locks it until the transaction
	// ends. It reports whether it did.
	EndBeat(agent, process string) (bool, error)
}

// kindTx reads and changes kinds, and what depends on them: agents, open items, the journal.
type kindTx interface {
	// EnsureKinds gives the kinds, sorted and distinct, a row where they have none. It does not lock or change existing
	// rows.
	EnsureKinds(names []string) error
	// Kind locks and returns the policy of a kind. If the kind has no row, it makes one, and known is false.
	Kind(name string) (k Kind, known bool, err error)
	// PutKind writes the policy of a kind. With limits, it waits for running claims that do not know these limits,
	// except for those that began when the kind had none.
	PutKind(k Kind) error
	// Standing as in Store.
	Standing(kind string) (stats.Standing, error)
	// Agents as in Store.
	Agents() ([]Agent, error)
	// Journal keeps what an operator or a program's start changed.
	Journal(e JournalEntry) error
}

// floorTx is for a ledger that was restored.
type floorTx interface {
	// Floors returns the floors of the ledger, and the greatest number that it has given to an item or to the holder of
	// a lock. Until the transaction ends no other process can lease or add anything, or take a lock.
	Floors() (floors []int64, given int64, err error)
	// PutFloors writes the floors. Ids and fences from then on are greater than above.
	PutFloors(floors []int64, above int64) error
	// PutHome records where the database keeps the ledger, in words of the store. Numbers from then on are greater than
	// all numbers in the tables.
	PutHome(home string) error
	// PutEnvironment records the environment of the ledger; "" means none. Without replace, one that it has stays.
	PutEnvironment(name string, replace bool) error
}

// Conn is a pool or an open transaction in the caller's database. Make one with
// postgres.Wrap, postgres.WrapSQL or sqlite.Wrap.
type Conn interface {
	Dialect() string
	Exec(ctx context.Context, query string, args ...any) (rows int64, err error)
	Query(ctx context.Context, query string, args ...any) (Rows, error)
}

// Rows is the part of a result that both drivers have.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close() error
}

// Identity identifies an item.
type Identity struct{ Kind, Scope, Key string }

// RecordQuery asks for records by id.
type RecordQuery struct {
	Filter Filter // without Fields
	Desc   bool   // the greatest id first
	Output bool   // with Record.Output
	Limit  int    // the most records
}

// Record is all that a store keeps of one item, without the attempts before Last.
type Record struct {
	ID int64
	Identity
	Stored
	Epoch       int64     // number of openings, from 1
	BaseAttempt int64     // attempts up to this number were pruned
	DonePeriod  time.Time // of a recurring item: the newest period completed in this opening; else zero
	Outage                // this and DonePeriod are not in records that Store.Claim returns

	Work   *Work    // its row in the backlog; nil when the item is finished
	Last   *Attempt // its newest ended attempt, without log and output; nil when there is none
	Output []byte   // of the newest attempt that has one; only if it was asked for
	Policy *Kind    // of its kind; only in records that a Tx loaded, and for Store.Ahead
}

// Work is the backlog row of an unfinished item.
type Work struct {
	State    State // waiting, ready, leased, dead or doubt
	Priority int16
	Due      time.Time
	Epoch    int64 // the round that is queued or being worked
	Attempt  int64 // number of the newest claim or verdict
	Failures int
	Crashes  int
	Losses   int
	Alone    bool // claim it alone
	Reopen   bool // a newer version arrived while it was leased, or before it came in doubt
	Cancel   bool // to be cancelled; asked for while the item was leased, kept in doubt for a late report
	// CancelReason is the reason that the operator gave for Cancel; else "".
	CancelReason string
	// Usual is the priority that the item gets back after its round; nil means that it keeps Priority.
	Usual *int16

	// All zero unless leased; StartedAt is zero until the start mark.
	Agent     string
	LockID    uuid.UUID
	LeasedAt  time.Time
	StartedAt time.Time
	ExpiresAt time.Time
	Renewals  int // of the lease; no rule changes it
}

// Change is what a rule decided about one record. Nil fields are left as they are.
type Change struct {
	ID      int64
	Work    *Work    // new backlog row (inserted or replaced)
	Finish  bool     // remove the backlog row
	Attempt *Attempt // appended; FinishedAt is the transaction's now
	Item    *ItemChange
	Outage  *Outage
	Forget  bool // remove the item and its attempts altogether
}

// ItemChange has the new values of the fields of an item that change when it is opened again.
type ItemChange struct {
	Fingerprint string
	Payload     []byte
	Every, Zone string
	Trace       string
	Epoch       int64
	Checksum    uint32 // of the new payload; 0: as before
}

// Grant is a validated Claim with its new lock_id.
type Grant struct {
	Claim
	LockID uuid.UUID
	Floor  int64 // attempts have greater numbers, see Next
}

// Claimed is what a claim leased.
type Claimed struct {
	Records []Record
	Limited bool // the kind has limits
	More    bool // nothing was leased, but rows were left out: claim again
	scheduler.HeldBack
}

// LeaseRef names a lease in a write.
type LeaseRef struct {
	ItemID int64
	LockID uuid.UUID
}

// Renewal is a lease that is in force.
type Renewal struct {
	LeaseRef
	ExpiresAt time.Time
	Cancel    bool // the item is to be cancelled
}

// Completion is an Ending that Store.Complete can write.
type Completion struct {
	LeaseRef
	Outcome Outcome // done or skipped
	Worker  string
	Code    string
	Error   string
	Log     string
	Output  []byte
}

// Agent is a program that claims.
type Agent struct {
	Name    string
	Host    string
	PID     int
	Process string // its name, see process.This; "" if it is not known
	Version string
	Kinds   map[string]string // the kinds that it works now → their definition
	// Configs are settings, each a JSON object without secrets. For a kind that the agent works they are in force. For
	// a Stalled kind that it does not work, because other agents work it with other settings, they are the settings
	// that it wants. They may be missing.
	Configs map[string]string
	// Stalled are kinds that the agent does not work until that time of the database's clock. A kind that is also in
	// Kinds has a plugin that crashes again and again; the plugin of any other kind does not start.
	Stalled map[string]time.Time
	// Plugins are the states of the plugins of Kinds and Stalled, as far as they are known.
	Plugins   map[string]health.Plugin
	Shard     scheduler.Shard // the shard that it claims; the zero one is all
	Skew      time.Duration   // how far its clock is ahead of the database's, in whole microseconds
	StartedAt time.Time       // of the program, by the database's clock at its first beat
	SeenAt    time.Time       // newest beat
}

// Audited is a record with its attempts, oldest first.
type Audited struct {
	Record
	Attempts []Attempt
	Checksum uint32 // as it was stored; 0: none
}
