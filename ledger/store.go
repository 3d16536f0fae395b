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

// Store keeps a ledger. Package storetest describes what it must do; no other package needs it.
//
// A store decides nothing: [Store.Update] gives the rules of this package the records they
// need, locked, and writes the changes they return. Claim, Complete, Renew, Start and Promote
// are the hot path and each one statement (or one short transaction) of the store's own.
//
// Errors: a database that is away, busy past the deadline or full matches ErrUnavailable; after
// it the caller may not know whether a commit took effect, so every operation is safe to repeat.
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

// queue lends ready items and ends leases: the hot path of every worker.
type queue interface {
	// Claim leases up to g.Limit ready items of one kind that is not paused, in the order
	// (priority, due, id), and returns their records as they stand afterwards. If the first is
	// Alone it is the only one; otherwise the list ends before the first that is. With
	// g.Resume, what the agent holds of the kind comes first, its expiry moved, its token kept.
	//
	// For a kind with limits it leases what scheduler.Limits.Admit grants, one claim at a time in all processes. It
	// reads the limits, and the leases that count for them, as committed before it began.
	Claim(ctx context.Context, g Grant) (Claimed, error)
	// Complete ends leases as done or skipped and returns the ids of those that it did: items that
	// are not recurring, are not failing (see Outage), are not to be reopened nor to be cancelled, and whose lock_id
	// is the given one.
	Complete(ctx context.Context, conn Conn, c []Completion) (landed []int64, err error)
	// CompleteAndClaim is Complete and then Claim, in one transaction. After an error neither has taken effect; after
	// ErrUnavailable either both have or neither. It claims even if it did not complete all. If the kind cannot be
	// claimed in this way, it only completes, and got.More is true, also with an error.
	CompleteAndClaim(ctx context.Context, c []Completion, g Grant) (landed []int64, got Claimed, err error)
	// Renew moves the expiry of leases, of different items, to now + ttl. It skips rows that another transaction has
	// locked, so an item that is missing from the answer may still be leased.
	Renew(ctx context.Context, ttl time.Duration, leases []LeaseRef) ([]Renewal, error)
	// Holders returns, of the given items, those that are leased, with their token.
	Holders(ctx context.Context, ids []int64) ([]Renewal, error)
	// Leased returns, of the given items, those that are leased, with these fields only: identity, Every and Zone; State,
	// Epoch, Attempt, Agent, LockID, LeasedAt, ExpiresAt, Alone and Due of Work.
	Leased(ctx context.Context, ids []int64) ([]Record, error)
	// Start marks leases, of different items, as started and moves their expiry to now + ttl. It
	// returns the ids that are still held under their token and not to be cancelled.
	Start(ctx context.Context, ttl time.Duration, leases []LeaseRef) (started []int64, err error)
	// Promote makes up to limit waiting items ready that are due. It returns the kinds of these items, and the earliest
	// due time of the items that still wait (zero: none).
	Promote(ctx context.Context, limit int) (kinds []string, next time.Time, err error)
}

// reader reads items and their attempts.
type reader interface {
	// Records returns records by id, see RecordQuery. With any filter, it reads no more than the
	// items between the bounds of their ids.
	Records(ctx context.Context, q RecordQuery) ([]Record, error)
	// Count counts the items that match f.
	Count(ctx context.Context, f Filter) (int64, error)
	// Tally counts the items that match, at one moment, by a column (ByKind, ByScope, ByShardKey or ByPayload of package
	// stats) and the state of their round, in no order. It ends with the first error of each.
	Tally(ctx context.Context, f Filter, column string, each func(Tally) error) error
	// Known reports of each identity whether there is an item of it.
	Known(ctx context.Context, keys []Identity) ([]bool, error)
	// Scopes returns up to limit scopes in which there are items of a kind, in order. It reads little more than
	// one row for each, however many items there are.
	Scopes(ctx context.Context, kind string, limit int) ([]string, error)
	// Attempts returns the ended attempts of an item, oldest first.
	Attempts(ctx context.Context, id int64) ([]Attempt, error)
	// AttemptsBefore returns up to limit ended attempts of an item, newest first: with a number below before, unless
	// that is 0.
	AttemptsBefore(ctx context.Context, id, before int64, limit int) ([]Attempt, error)
	// LastOutput is the output of the newest attempt of an item that completed a round; nil without one.
	LastOutput(ctx context.Context, id int64) ([]byte, error)
	// Ended returns attempts by when they ended, then by item and number, see EndedQuery. It goes
	// by indexes, however many attempts there are. Round is left to the ledger.
	Ended(ctx context.Context, q EndedQuery) ([]Ended, error)
}

// statistics counts unfinished items, and those that are held back.
type statistics interface {
	// Standing counts the unfinished items of a kind, or of a shard of it, from one snapshot.
	Standing(ctx context.Context, kind string, part scheduler.Shard) (stats.Standing, error)
	// Counts counts the backlog, and the attempts that ended since the given time, by kind.
	Counts(ctx context.Context, since time.Time) ([]stats.Counts, error)
	// Ahead counts the ready items of the record's kind that a claim takes before it, up to limit; if
	// Policy has limits by shard key, of those of its shard key.
	Ahead(ctx context.Context, r *Record, limit int) (int64, error)
	// Crowding describes how the limits of a kind stand, in all and for a shard key, and the time.
	Crowding(ctx context.Context, kind, key string) (scheduler.Crowding, error)
}

// registry keeps the kinds, the agents and the journal of what operators did.
type registry interface {
	// Kinds returns all kinds, or those of these names that there are, by name.
	Kinds(ctx context.Context, names ...string) ([]Kind, error)
	// Beat writes the heartbeat of an agent that is a program; ttl 0 removes it. It keeps when the program
	// started, unless it was of another process.
	Beat(ctx context.Context, a Agent, ttl time.Duration) error
	// Agents returns the agents whose heartbeat has not run out.
	Agents(ctx context.Context) ([]Agent, error)
	// Heartbeats is Agents, and those that hold leases though theirs has run out.
	Heartbeats(ctx context.Context) ([]Agent, error)
	// Lapsed returns the agents whose heartbeat has run out within bounds.LapsedKept, and was not removed, by name. Beat
	// forgets earlier ones, and more than bounds.LapsedMost, unless they hold leases.
	Lapsed(ctx context.Context) ([]Agent, error)
	// LeasedBy counts the leased items of each agent.
	LeasedBy(ctx context.Context) (map[string]int64, error)
	// Journal returns up to limit entries of the journal, newest first: with an id below before, unless that
	// is 0, and written at or after since.
	Journal(ctx context.Context, before int64, since time.Time, limit int) ([]JournalEntry, error)
}

// tallies keeps how many attempts ended, by minute and by hour.
type tallies interface {
	// AddTallies adds the counts to those stored for the same minute, kind and agent. If it is repeated, it adds twice.
	AddTallies(ctx context.Context, tallies []stats.Minute) error
	// Tallies returns the sums over all agents of the minutes from since on, by time and kind.
	Tallies(ctx context.Context, since time.Time) ([]stats.Minute, error)
	// ForgetTallies removes the minutes before a time.
	ForgetTallies(ctx context.Context, before time.Time) error
}

// administration looks after the database as a whole.
type administration interface {
	// Schema reads how far the tables are, and the floors. A store without tables has only these.
	Schema(ctx context.Context) (Schema, error)
	// Home is where the database keeps the ledger now, in words; "" if that is not known.
	Home(ctx context.Context) (string, error)
	// Opened are the floors that the ledger had when it was opened.
	Opened() []int64
	// Now is the database's clock.
	Now(ctx context.Context) (time.Time, error)
	// Prune removes, of up to limit items of the kind whose newest attempt is final and ended
	// before the given time, output, log and error, and all attempts but the newest, and empties their
	// payloads where they have one;
	// of recurring items, the attempts before the newest completion, by which it is known that its
	// period is done. It returns how many items.
	Prune(ctx context.Context, kind string, before time.Time, limit int) (int, error)
	// Audit returns up to limit records with id > after and their attempts, from one snapshot.
	Audit(ctx context.Context, after int64, limit int) ([]Audited, error)
	// Orphans returns rows that belong to nothing, at most limit of each sort.
	Orphans(ctx context.Context, limit int) (invariant.Orphans, error)
	// Close waits for running calls and frees what the store opened.
	Close() error
}

// hints tells other processes that something may be claimed. The database stays the truth.
type hints interface {
	// Watch calls wake whenever another process may have made items of a kind ready ("" means
	// any kind), until ctx ends. It is a hint: calls may be missing. A store without such
	// hints waits for ctx.
	Watch(ctx context.Context, wake func(kind string))
	// Announce tells the watchers of other processes. It does not wait and may be coalesced.
	Announce(kinds ...string)
}

// Tx is what a rule sees of a write transaction.
type Tx interface {
	itemTx
	leaseTx
	kindTx
	lockTx
	floorTx
}

// itemTx reads and changes items.
type itemTx interface {
	// Now is the database's clock, read inside the transaction and the same for all of it.
	Now() time.Time
	// Insert adds the items whose identity is not known and returns an id per item, 0 for the
	// known ones. Identities within one call are distinct. Record.ID is ignored, CreatedAt is
	// the database's now; a Work.Due that is zero means now.
	Insert(items []Record) ([]int64, error)
	// Load locks and returns the records with these ids, in id order; missing ids are left out.
	Load(ids []int64) ([]Record, error)
	// LoadKeys is Load by identity.
	LoadKeys(ids []Identity) ([]Record, error)
	// Attempts returns the attempts of one item, oldest first.
	Attempts(id int64) ([]Attempt, error)
	// Apply writes changes, each of a record that was loaded in this transaction.
	Apply(changes []Change) error
}

// leaseTx finds leases that are to end, and lets others have what they held.
type leaseTx interface {
	// LoadExpired locks and returns up to limit records whose lease has expired, longest ago
	// first; what others have locked is skipped.
	LoadExpired(limit int) ([]Record, error)
	// LoadLeased is LoadExpired of what the agent had leased by now, expired or not; of "" all that is leased.
	LoadLeased(agent string, limit int) ([]Record, error)
	// EndBeat lets the heartbeat of an agent run out now, if it is that process's, and keeps it from being
	// changed until the transaction ends. It reports whether it was.
	EndBeat(agent, process string) (bool, error)
}

// kindTx reads and changes kinds, and what a change of one asks: agents, open items, the journal.
type kindTx interface {
	// EnsureKinds gives the kinds, sorted and distinct, a row where they have none. It does not
	// lock or change rows that are there.
	EnsureKinds(names []string) error
	// Kind locks and returns the policy of a kind, having given it a row if it had none: known is
	// false then.
	Kind(name string) (k Kind, known bool, err error)
	// PutKind writes the policy of a kind. With limits, no claim of it is under way then that does not
	// know them, but for those that began when it had none.
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
	// Floors are those of the ledger, and the greatest number that it has given to an item or to the holder of a lock.
	// Until the transaction ends no other process leases or adds anything, or takes a lock.
	Floors() (floors []int64, given int64, err error)
	// PutFloors writes them. Ids and fences that are given from then on are above a number.
	PutFloors(floors []int64, above int64) error
	// PutHome records where the database keeps the ledger, in words of the store. Numbers that are given from then on
	// are above those of what is there.
	PutHome(home string) error
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

// Identity of an item.
type Identity struct{ Kind, Scope, Key string }

// RecordQuery asks for records by id.
type RecordQuery struct {
	Filter Filter // without Fields
	Desc   bool   // the greatest id first
	Output bool   // with Record.Output
	Limit  int    // most of them
}

// Record is all that a store keeps of one item but its earlier attempts.
type Record struct {
	ID int64
	Identity
	Stored
	Epoch       int64     // number of openings, from 1
	BaseAttempt int64     // attempts up to this one were pruned
	DonePeriod  time.Time // of a recurring item: the newest period that was completed; else zero
	DoneEpoch   int64     // the newest opening in which it was completed; else 0
	Outage                // not in records that Store.Claim returns

	Work   *Work    // its row in the backlog; nil when the item is finished
	Last   *Attempt // its newest ended attempt, without log and output; nil when there is none
	Output []byte   // of the newest attempt that has one; only in records that were asked for with it
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
	Cancel   bool // asked to be cancelled while leased; kept in doubt, for a late report
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

// ItemChange rewrites what an opening changes of an item.
type ItemChange struct {
	Fingerprint string
	Payload     []byte
	Every, Zone string
	Trace       string
	Epoch       int64
}

// Grant is a validated Claim with the token it gives.
type Grant struct {
	Claim
	LockID uuid.UUID
	Floor  int64 // attempts have greater numbers, see Next
}

// Claimed is what a claim leased.
type Claimed struct {
	Records []Record
	Limited bool // the kind has limits
	More    bool // nothing was leased, but not all was looked at: claim again
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

// Completion is an Ending of the fast path.
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
	Kinds   map[string]string // that it works now → their definition
	// Configs are the settings, a JSON object without secrets: those in force of kinds that it works, and of
	// Stalled ones that it does not work since others work them with other settings, those that it is to work
	// them with. They may be missing.
	Configs map[string]string
	// Stalled are kinds that it does not work until that time of the database's clock: kinds of Kinds because their
	// plugin crashes again and again, others because their plugin does not start.
	Stalled map[string]time.Time
	// Plugins are the states of the plugins of Kinds and Stalled, as far as they are known.
	Plugins   map[string]health.Plugin
	Shard     scheduler.Shard // that it claims; the zero one is all
	Skew      time.Duration   // how far its clock is ahead of the database's, in whole microseconds
	StartedAt time.Time       // of the program, by the database's clock at its first beat
	SeenAt    time.Time       // newest beat
}

// Audited is a record with its attempts, oldest first.
type Audited struct {
	Record
	Attempts []Attempt
}
