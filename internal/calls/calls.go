// Package calls describes the calls between two ledgerd programs over HTTP: the paths, the requests and the answers.
// Package api serves them, package remote makes them. Their types are those of package ledger, so a command prints the
// same wherever the ledger is.
//
// These calls are not for other programs, and docs/api.md does not describe them. A call or a field may be added. None
// changes its meaning. A server refuses a field that it does not know, because without it an act could reach more items
// than the caller means.
package calls

import (
	"encoding/json"
	"time"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/order"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Call is one call: its name, and the scope that the caller needs.
type Call[In, Out any] struct {
	Name     string
	Scope    access.Scope
	AllKinds bool // not for tokens that are bound to kinds
	Loose    bool // fields that the server does not know are ignored, as a newer caller may report more
}

// Path is the path of the call below the base of the API.
func (c Call[In, Out]) Path() string { return Prefix + c.Name }

// Prefix begins the path of each call.
const Prefix = "/calls/"

// None is the input of a call without parameters, or the output of a call without a result.
type None struct{}

// The calls that only read.
var (
	Now           = Call[None, time.Time]{Name: "now", Scope: access.Read}
	Walk          = Call[WalkIn, WalkOut]{Name: "walk", Scope: access.Read}
	Count         = Call[CountIn, Counted]{Name: "count", Scope: access.Read}
	Attempts      = Call[AttemptsIn, []ledger.Attempt]{Name: "attempts-before", Scope: access.Read}
	LastOutput    = Call[ItemIn, []byte]{Name: "last-output", Scope: access.Work}
	Why           = Call[ItemIn, ledger.Reason]{Name: "why", Scope: access.Read}
	Ended         = Call[ledger.EndedQuery, []ledger.Ended]{Name: "ended", Scope: access.Read}
	Recent        = Call[RecentIn, []ledger.Ended]{Name: "recent", Scope: access.Read}
	Journal       = Call[JournalIn, JournalOut]{Name: "journal-part", Scope: access.Read, AllKinds: true}
	Stats         = Call[None, stats.Summary]{Name: "stats", Scope: access.Read}
	Counts        = Call[CountsIn, []stats.Counts]{Name: "counts", Scope: access.Read}
	Standing      = Call[StandingIn, stats.Standing]{Name: "standing", Scope: access.Read}
	Groups        = Call[GroupsIn, GroupsOut]{Name: "groups", Scope: access.Read}
	AttemptGroups = Call[AttemptGroupsIn, AttemptGroupsOut]{Name: "attempt-groups", Scope: access.Read}
	Agents        = Call[None, []ledger.Agent]{Name: "agents", Scope: access.Read}
	Heartbeats    = Call[None, []ledger.Agent]{Name: "heartbeats", Scope: access.Read}
	Lapsed        = Call[None, []ledger.Agent]{Name: "lapsed", Scope: access.Read}
	LeasedBy      = Call[None, map[string]int64]{Name: "leased-by", Scope: access.Read, AllKinds: true}
	Holders       = Call[FilterIn, []ledger.Holder]{Name: "holders", Scope: access.Read}
	Kinds         = Call[None, []ledger.Kind]{Name: "kinds", Scope: access.Read}
	Pauses        = Call[PausesIn, map[string]ledger.JournalEntry]{Name: "pauses", Scope: access.Read}
	Known         = Call[KnownIn, []bool]{Name: "known", Scope: access.Read}
	Lease         = Call[LeaseIn, LeaseOut]{Name: "lease", Scope: access.Work}
)

// The calls that change something.
var (
	Add        = Call[AddIn, AddOut]{Name: "add", Scope: access.Add}
	Act        = Call[ActIn, ActOut]{Name: "act", Scope: access.Operate}
	EditKind   = Call[EditKindIn, EditKindOut]{Name: "edit-kind", Scope: access.Operate}
	Define     = Call[DefineIn, DefineOut]{Name: "define", Scope: access.Work}
	Beat       = Call[BeatIn, None]{Name: "beat", Scope: access.Work, Loose: true}
	Expire     = Call[ExpireIn, int]{Name: "expire", Scope: access.Work}
	AddTallies = Call[TalliesIn, None]{Name: "add-tallies", Scope: access.Work, Loose: true}
)

// Bounds of requests and answers.
const (
	MostWalked   = 1000            // items of one answer to Walk
	WalkTime     = 2 * time.Second // for the search for one answer
	MostAttempts = 20              // of one answer; each has an output of up to 1 MiB
	MostActed    = 500             // items of one Act: one transaction
	MostAdded    = 5000            // items of one Add
)

// WalkIn asks for a part of a walk.
type WalkIn struct {
	Filter ledger.Filter
	Order  order.By
	Desc   bool
	After  ledger.Mark
	Output bool
	Time   time.Duration // at most WalkTime; 0: WalkTime
	Top    int
	Limit  int // most items; at most MostWalked, unless the order has no index
}

// WalkOut is a part of a walk.
type WalkOut struct {
	Items   []ledger.Item
	Reached ledger.Mark
	More    bool // there may be more after Reached
}

// FilterIn chooses items.
type FilterIn struct{ Filter ledger.Filter }

// ItemIn names an item.
type ItemIn struct{ ID int64 }

// AttemptsIn asks for attempts of an item, the newest first: those with a number below Before, or all if that is 0.
type AttemptsIn struct {
	ID, Before int64
	Limit      int // at most MostAttempts
}

// JournalIn asks for a part of the journal, as in ledger.JournalPart.
type JournalIn struct {
	Query  ledger.JournalQuery
	Within time.Duration
}

// JournalOut is a part of the journal, and the query for the next one.
type JournalOut struct {
	Entries []ledger.JournalEntry
	Next    ledger.JournalQuery
}

// CountIn asks how many items match. If UpTo is set, Most and Within bound the count, as in ledger.CountUpTo.
type CountIn struct {
	Filter ledger.Filter
	UpTo   bool
	Most   int64
	Within time.Duration
}

// Counted is how many items match. Whole: all of them were counted.
type Counted struct {
	N     int64
	Whole bool
}

// RecentIn asks for the N items that ended last.
type RecentIn struct {
	Filter ledger.Filter
	N      int
}

// CountsIn asks for counts of the backlog, and of the attempts that ended since a time.
type CountsIn struct{ Since time.Time }

// StandingIn asks for the open items of a kind.
type StandingIn struct {
	Kind  string
	Shard scheduler.Shard
}

// GroupsIn asks for groups of items.
type GroupsIn struct {
	Filter ledger.Filter
	By     string
	Within time.Duration
}

// GroupsOut are groups of items.
type GroupsOut struct {
	Groups []stats.Group
	Whole  bool
}

// AttemptGroupsIn asks for groups of attempts.
type AttemptGroupsIn struct {
	Filter ledger.Filter
	By     []string
	Within time.Duration
}

// AttemptGroupsOut are groups of attempts.
type AttemptGroupsOut struct {
	Groups  []AttemptGroup
	Reached time.Time
}

// AttemptGroup is a group of attempts with its counts by outcome.
type AttemptGroup struct {
	stats.AttemptGroup
	Counts map[ledger.Outcome]int64
}

// PausesIn asks for the newest pause of each kind.
type PausesIn struct{ Kinds []ledger.Kind }

// KnownIn asks which identities are known.
type KnownIn struct{ Keys []ledger.Identity }

// LeaseIn names a lease by its short token, ID.ATTEMPT.
type LeaseIn struct{ ID, Attempt int64 }

// LeaseOut is a lease.
type LeaseOut struct {
	Token              string // the full token
	Item               ledger.Item
	Agent              string
	StartedAt, Expires time.Time
	Alone              bool
}

// AddIn are items to be added, or only to be tried.
type AddIn struct {
	Items []ledger.NewItem
	Try   bool
	Bulk  *ledger.BulkAct `json:",omitempty"` // the journal's entry of items that are opened again, so far
}

// AddOut is the answer for each item.
type AddOut struct {
	Added []ledger.Added
	Bulk  *ledger.BulkAct `json:",omitempty"` // after the call
}

// The names of acts.
const (
	Retry     = "retry"
	Reopen    = "reopen"
	Cancel    = "cancel"
	Release   = "release"
	Place     = "place"
	PutOff    = "put-off"
	Forget    = "forget"
	DecideAll = "decide-all"
	Decide    = "decide" // of the one item that Filter names
)

// ActIn is an act on at most MostActed items.
type ActIn struct {
	Act     string
	Actor   string        // for the journal
	Filter  ledger.Filter // names the items by id
	Options ledger.ActOptions
	Until   time.Time     // of PutOff
	Agent   string        // of Decide and DecideAll: the agent of the decision
	Result  ledger.Result // of Decide and DecideAll
	Bulk    *ledger.BulkAct
}

// ActOut is the result of an act.
type ActOut struct {
	IDs  []int64 // that were changed
	Left int64   // of Forget: number of unfinished items; they stay
	Bulk *ledger.BulkAct
}

// EditKindIn replaces the policy Have of a kind by Want.
type EditKindIn struct {
	Actor string
	Name  string
	Have  json.RawMessage // the policy as the caller read it, a ledger.Kind
	Want  ledger.Kind
	Asked string // for the journal
}

// EditKindOut is the policy that is stored. Stale means that it differs from Have, and was not changed.
type EditKindOut struct {
	Kind  ledger.Kind
	Known bool
	Stale bool
}

// DefineIn is the definition and the config with which an agent works a kind from now on.
type DefineIn struct {
	Agent                    ledger.Agent
	Kind, Definition, Config string
}

// DefineOut has the conflict; nil if there is none.
type DefineOut struct{ Conflict *ledger.DefinitionError }

// BeatIn is a heartbeat.
type BeatIn struct {
	Agent ledger.Agent
	TTL   time.Duration
}

// ExpireIn asks to take back expired leases, at most Limit.
type ExpireIn struct{ Limit int }

// TalliesIn are counts of ended attempts, by minute.
type TalliesIn struct{ Minutes []stats.Minute }
