package ledger

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Store keeps a ledger. Package storetest says what it must do; no other package needs it.
//
// A store decides nothing: [Store.Update] gives the rules of this package the records they
// need, locked, and writes the changes they return. Claim, Complete, Renew, Start and Promote
// are the hot path and each one statement (or one short transaction) of the store's own.
//
// Errors: a database that is away, busy past the deadline or full matches ErrUnavailable; after
// it the caller may not know whether a commit took effect, so every operation is safe to repeat.
type Store interface {
	// Update runs fn in one write transaction and commits it if fn returns nil. When the
	// database gives up on the transaction (deadlock, serialization failure, busy) all of it
	// is repeated, so fn must be free of other effects. With a conn, the transaction is the
	// caller's: nothing is committed or repeated here.
	Update(ctx context.Context, conn Conn, fn func(Tx) error) error

	// Claim leases up to g.Limit ready items of one kind that is not paused, in the order
	// (priority, due, id), and returns their records as they stand afterwards. If the first is
	// Alone it is the only one; otherwise the list ends before the first that is. With
	// g.Resume, what the agent holds of the kind comes first, its expiry moved, its token kept.
	//
	// Which items it takes of those that need resources is said by Grant.Pick, of all that is ready
	// of the kind. A store may lay aside what was passed over for want of a resource, and look at it
	// again once that is free, or a second after that at the latest.
	//
	// Of a kind with limits it takes what Kind.Admit grants, one claim at a time in all processes; of
	// those limits, how much is leased, and when, it reads what is committed before it began.
	Claim(ctx context.Context, g Grant) (Claimed, error)

	// Crowding says how the limits of a kind stand, in all and for a shard key, and the time.
	Crowding(ctx context.Context, kind, key string) (Crowding, error)

	// Complete ends leases as done or skipped and returns the ids of those that it did: items that
	// are not recurring, hold no resources, are not to be reopened nor to be cancelled, and whose lock_id
	// is the given one.
	Complete(ctx context.Context, conn Conn, c []Completion) (landed []int64, err error)

	// Renew moves the expiry of leases to now + ttl. Rows that somebody else has locked are
	// skipped; an item that is missing from the answer is not known to be lost.
	Renew(ctx context.Context, ttl time.Duration, leases []LeaseRef) ([]Renewal, error)

	// Holders returns, of the given items, those that are leased, with their token.
	Holders(ctx context.Context, ids []int64) ([]Renewal, error)

	// Start marks leases as started and moves their expiry to now + ttl. It returns the ids
	// that are still held under their token and not to be cancelled.
	Start(ctx context.Context, ttl time.Duration, leases []LeaseRef) (started []int64, err error)

	// Promote makes up to limit waiting items ready whose time has come. It returns the kinds
	// of which it made some ready, and the earliest due time of what still waits (zero: nothing).
	Promote(ctx context.Context, limit int) (kinds []string, next time.Time, err error)

	// Schema reads how far the tables are. A store without any returns zero.
	Schema(ctx context.Context) (Schema, error)
	// Now is the database's clock.
	Now(ctx context.Context) (time.Time, error)
	// Records returns records by id, as RecordQuery says. Whatever the filter, it reads no more than the
	// items between the bounds of their ids.
	Records(ctx context.Context, q RecordQuery) ([]Record, error)
	// Count counts the items that match f.
	Count(ctx context.Context, f Filter) (int64, error)
	// Ended returns attempts by when they ended, then by item and number, as EndedQuery says. It goes
	// by indexes, however many attempts there are. Round is left to the ledger.
	Ended(ctx context.Context, q EndedQuery) ([]Ended, error)
	// Ahead counts the ready items of the record's kind that a claim takes before it, up to limit; of
	// those that need no resources, since nobody knows when the others get theirs, and if Policy has
	// limits by shard key, of those of its shard key.
	Ahead(ctx context.Context, r *Record, limit int) (int64, error)
	// Known says of each identity whether there is an item of it.
	Known(ctx context.Context, keys []Identity) ([]bool, error)
	// Tally counts the items that match, at one moment, by a column (ByKind, ByScope, ByPayload)
	// and the state of their round, in no order. It ends with the first error of each.
	Tally(ctx context.Context, f Filter, column string, each func(Tally) error) error
	// Attempts returns the ended attempts of an item, oldest first.
	Attempts(ctx context.Context, id int64) ([]Attempt, error)
	// LastOutput is the output of the newest attempt of an item that completed a round; nil without one.
	LastOutput(ctx context.Context, id int64) ([]byte, error)
	// Kinds returns all kinds, by name.
	Kinds(ctx context.Context) ([]Kind, error)
	// Holds returns which of these resources are not free, by resource.
	Holds(ctx context.Context, resources []string) ([]Hold, error)
	// Standing says, from one snapshot, what is open of a kind, or of a shard of it.
	Standing(ctx context.Context, kind string, part Shard) (Standing, error)
	// Counts counts the backlog, and the attempts that ended since the given time, by kind.
	Counts(ctx context.Context, since time.Time) ([]Counts, error)

	// Locks as in LockStore.
	Locks(ctx context.Context, name string) ([]Lock, time.Time, error)

	// Beat writes the heartbeat of an agent that is a program; ttl 0 removes it.
	Beat(ctx context.Context, a Agent, ttl time.Duration) error
	// Agents returns the agents whose heartbeat has not run out.
	Agents(ctx context.Context) ([]Agent, error)
	// Journal returns up to limit entries of the journal, newest first: with an id below before, unless that
	// is 0, and written at or after since.
	Journal(ctx context.Context, before int64, since time.Time, limit int) ([]JournalEntry, error)
	// Heartbeats is Agents, and those that hold leases though theirs has run out.
	Heartbeats(ctx context.Context) ([]Agent, error)
	// LeasedBy counts, by agent, what is leased.
	LeasedBy(ctx context.Context) (map[string]int64, error)

	// AddTallies adds to what is kept of these minutes, kinds and agents. Repeated, it adds twice.
	AddTallies(ctx context.Context, tallies []MinuteTally) error
	// Tallies returns the sums over all agents of the minutes from since on, by time and kind.
	Tallies(ctx context.Context, since time.Time) ([]MinuteTally, error)
	// FoldTallies makes hours of the minutes before the one time, and removes the hours before the other.
	FoldTallies(ctx context.Context, minutes, hours time.Time) error

	// Prune removes, of up to limit items of the kind whose newest attempt is final and ended
	// before the given time, output, log and error, and all attempts but the newest, and empties their
	// payloads where they have one;
	// of recurring items, the attempts before the newest completion, which is what says that its
	// period is done. It returns how many items.
	Prune(ctx context.Context, kind string, before time.Time, limit int) (int, error)

	// Audit returns up to limit records with id > after and their attempts, from one snapshot.
	Audit(ctx context.Context, after int64, limit int) ([]Audited, error)
	// Orphans returns rows that belong to nothing, at most limit of each sort.
	Orphans(ctx context.Context, limit int) (Orphans, error)

	// Watch calls wake whenever another process may have made items of a kind ready ("" means
	// any kind), until ctx ends. It is a hint: calls may be missing. A store without such
	// hints waits for ctx.
	Watch(ctx context.Context, wake func(kind string))
	// Announce tells the watchers of other processes. It does not wait and may be coalesced.
	Announce(kinds ...string)

	// Close waits for running calls and frees what the store opened.
	Close() error
}

// Tx is what a rule sees of a write transaction.
type Tx interface {
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
	// LoadExpired locks and returns up to limit records whose lease has expired, longest ago
	// first; what others have locked is skipped.
	LoadExpired(limit int) ([]Record, error)
	// LoadLeased is LoadExpired of what the agent had leased by now, expired or not.
	LoadLeased(agent string, limit int) ([]Record, error)
	// EndBeat lets the heartbeat of an agent run out now, if it is that process's, and keeps it from being
	// changed until the transaction ends. It says whether it was.
	EndBeat(agent, process string) (bool, error)
	// Attempts returns the attempts of one item, oldest first.
	Attempts(id int64) ([]Attempt, error)
	// Apply writes changes, each of a record that was loaded in this transaction. A lease that ends
	// holds no resource any more.
	Apply(changes []Change) error
	// Wake lets those look again who wait for resources that this transaction has freed. It calls
	// woken with each kind of which something may be claimed now, before Update returns; in a
	// transaction of the caller's it may do nothing.
	Wake(resources []string, woken func(kind string)) error
	// EnsureKinds gives the kinds, sorted and distinct, a row where they have none. It does not
	// lock or change rows that are there.
	EnsureKinds(names []string) error
	// Kind locks and returns the policy of a kind, having given it a row if it had none: known is
	// false then.
	Kind(name string) (k Kind, known bool, err error)
	// PutKind writes the policy of a kind. With limits, no claim of it is under way then that does not
	// know them, but for those that began when it had none.
	PutKind(k Kind) error
	// Gate notes that these kinds have items that need resources, and keeps them from getting limits
	// until the transaction ends; of those that have limits it does not, and returns them.
	Gate(kinds []string) (limited []string, err error)
	// Gated says whether a kind has ever had items that need resources.
	Gated(kind string) (bool, error)
	// Standing and Agents as in Store.
	Standing(kind string) (Standing, error)
	Agents() ([]Agent, error)
	// Journal keeps what an operator or a program's start changed.
	Journal(e JournalEntry) error

	LockTx
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
	Fingerprint string
	Payload     []byte // nil: none; empty, and not nil: it was pruned
	ShardKey    string // "" means Key
	Slot        int
	Every, Zone string
	Resources   []string // sorted and distinct; nil: it needs none
	Source      string
	Epoch       int64 // number of openings, from 1
	BaseAttempt int64 // attempts up to this one were pruned
	CreatedAt   time.Time
	DonePeriod  time.Time // of a recurring item: the newest period that was completed; else zero
	DoneEpoch   int64     // the newest opening in which it was completed; else 0

	Work   *Work    // its row in the backlog; nil when the item is finished
	Last   *Attempt // its newest ended attempt, without log and output; nil when there is none
	Output []byte   // of the newest attempt that has one; only in records that were asked for with it
	Policy Kind     // of its kind; only in records that a Tx loaded, and for Store.Ahead
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

	Gated    bool      // claimed only with its resources; of a leased one: it holds some
	PassedAt time.Time // since when claims have passed it over for want of a resource; zero unless ready

	// All zero unless leased; StartedAt is zero until the start mark.
	Agent     string
	LockID    uuid.UUID
	LeasedAt  time.Time
	StartedAt time.Time
	ExpiresAt time.Time
}

// Change is what a rule decided about one record. Nil fields are left as they are.
type Change struct {
	ID      int64
	Work    *Work    // new backlog row (inserted or replaced)
	Finish  bool     // remove the backlog row
	Attempt *Attempt // appended; FinishedAt is the transaction's now
	Item    *ItemChange
	Forget  bool // remove the item and its attempts altogether
}

// ItemChange rewrites what an opening changes of an item.
type ItemChange struct {
	Fingerprint string
	Payload     []byte
	Every, Zone string
	Resources   []string
	Epoch       int64
}

// Grant is a validated Claim with the token it gives.
type Grant struct {
	Claim
	LockID uuid.UUID
}

// Claimed is what a claim leased.
type Claimed struct {
	Records []Record
	Limited bool // the kind has limits
	More    bool // nothing was leased, but there are shard keys at which nobody has looked
	HeldBack
}

// Crowding is how the limits of a kind stand at a moment of the database's clock.
type Crowding struct {
	Now        time.Time
	Whole, Key Lane
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

// StandingCap bounds what Standing counts of ready and waiting items: beyond it the figure is the cap.
const StandingCap = 100_000

// Standing is what is open of one kind, at one moment of the database.
type Standing struct {
	Now     time.Time
	Ready   int64     // ready, or waiting though its time has come; counted up to StandingCap
	Held    int64     // leased by programs, in force or expired; leased by others and expired
	Persons int64     // leased by agents without a heartbeat row, in force
	Waiting int64     // due later
	NextDue time.Time // the earliest of what waits; zero: nothing waits
	Dead    int64
	Doubt   int64
}

// Counts is the backlog of a kind, and what ended lately.
type Counts struct {
	Kind                                string
	Waiting, Ready, Leased, Dead, Doubt int64
	// Of what waits, recurring items of which the current round is done, and of which it failed for good;
	// of the first StandingCap that wait for something after an attempt.
	RoundsDone, RoundsFailed int64
	OldestReady              time.Time // due time of the longest ready item
	Done, Failed             int64     // attempts since the asked time
}

// Agent is a program that claims.
type Agent struct {
	Name    string
	Host    string
	PID     int
	Process string // its name, see ThisProcess; "" if it is not known
	Version string
	Kinds   map[string]string // that it works now → their definition
	// Configs are the settings, a JSON object without secrets: those in force of kinds that it works, and of
	// Stalled ones that it does not work since others work them with other settings, those that it is to work
	// them with. They may be missing.
	Configs map[string]string
	// Stalled are kinds to which it gives nothing until that time of the database's clock: those of Kinds
	// because what works them crashes again and again, others because what is to work them does not start.
	Stalled   map[string]time.Time
	Shard     Shard         // that it claims; the zero one is all
	Skew      time.Duration // how far its clock is ahead of the database's, in whole microseconds
	StartedAt time.Time     // of the program, by the database's clock at its first beat
	SeenAt    time.Time     // newest beat
}

// Audited is a record with its attempts, oldest first, and the resources that it holds, sorted.
type Audited struct {
	Record
	Attempts []Attempt
	Held     []string
}

// Orphans are ids of items: of rows of the backlog and attempts without an item, and of resources
// that are held by none of the leased ones. Beyond is what is leased beyond a limit, of what was leased
// since the limits of its kind were set. Misfiled is what is kept under a limit that is not its own.
type Orphans struct{ Backlog, Attempts, Held, Beyond, Misfiled []int64 }
