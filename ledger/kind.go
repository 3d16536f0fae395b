package ledger

import (
	"cmp"
	"math"
	"time"

	"github.com/ledgerd/ledgerd/ledger/payload"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// Kind is the policy of a kind. It is kept in the ledger, so that every daemon, also one without a config file, treats
// an item in the same way. A kind without a policy has the zero one.
type Kind struct {
	Name string
	// Plugin that works the kind; "" means the plugin with the name of the kind, or people.
	Plugin string
	// Input describes what the command line takes as INPUT of this kind.
	Input Input
	// OnLost is what a lease that expired, or a process that died, means for the item.
	OnLost OnLost
	// MaxFailures is the number of failed attempts after which an item is dead; 0 means 5.
	// A recurring item is never dead by failing: it ends the period and waits for the next.
	MaxFailures int
	// MaxCrashes is the number of crashes of its process after which an item is dead; 0 means 3.
	MaxCrashes int
	// MaxLost is the number of expired leases in a row after which an item is dead; 0 means 10.
	MaxLost int
	// Backoff before attempt n+1: uniform in 0 … min(Cap, Base·2ⁿ); zero means 1 s, and 10 min or Base if that is more.
	// A Base above a given Cap is refused.
	Backoff Backoff
	// Timeout of one attempt; 0 means none but the lease's renewal.
	Timeout time.Duration
	// Limits of how many items are leased, and how fast, by all processes together.
	Limits scheduler.Limits
	// Keep is how long payload, output and attempts of done and cancelled items stay. 0 means 30 days, KeepForever for
	// ever. The identity of the item and its newest attempt, without texts, stay in any case. All of an item that is
	// dead or in doubt stays. Of a recurring item, attempts before the newest completion of that age are removed.
	Keep time.Duration
	// Paused kinds are not claimed.
	Paused bool
	// Definition names what works this kind and with which settings ("exec@0.1.0+3fa9c1": the
	// plugin, its version, a digest of its config without secrets); see Ledger.Define.
	Definition string
	// Config are the settings of the plugin, as far as known: a JSON object without secrets, for people. Processes that
	// work the kind may differ in settings that do not change what a result means, see Agent.
	Config string
	// Defaults are what commands put into the payload of new items where no other source gives it.
	Defaults payload.Defaults
}

// Input is how the command line makes items of a kind. The zero value is lines of text.
type Input struct {
	Type  string `json:"type,omitempty"`  // "file", "url" or "line"; "" means "line"
	Field string `json:"field,omitempty"` // of the payload that takes INPUT; "" means none
	// Match are patterns of base names of the files that are taken from a folder; empty means all.
	Match []string `json:"match,omitempty"`
	// Modified and Owner are the fields of the payload that take the time of the last change of a file (RFC 3339 in UTC)
	// and the owner of the file; "" means none.
	Modified string `json:"modified,omitempty"`
	Owner    string `json:"owner,omitempty"`
	// Secret are the fields of the payload that the plugin marks as secret; readers at a distance do not see them.
	Secret []string `json:"secret,omitempty"`
}

// OnLost is what happens to an item whose attempt ended without a report: its lease expired, its process died, or its
// handler panicked or overran its timeout.
type OnLost string

const (
	OnLostRepeat OnLost = "repeat" // it becomes ready again (the default, also for "")
	OnLostDoubt  OnLost = "doubt"  // it is in doubt; a late report of its holder still settles it
)

// Backoff is exponential with full jitter (AWS Architecture Blog, "Exponential Backoff and Jitter", 2015).
type Backoff struct{ Base, Cap time.Duration }

// KeepForever as a Kind's Keep removes nothing.
const KeepForever = math.MaxInt64 / time.Microsecond * time.Microsecond

// An item is claimed alone if its process crashed, or its lease was lost, this often. So it cannot harm items of the
// same claim again.
const (
	aloneCrashes = 2
	aloneLosses  = 3
)

// WithDefaults returns the policy with the defaults in its zero fields.
func (k Kind) WithDefaults() Kind {
	k.OnLost = cmp.Or(k.OnLost, OnLostRepeat)
	k.MaxFailures = cmp.Or(k.MaxFailures, 5)
	k.MaxCrashes = cmp.Or(k.MaxCrashes, 3)
	k.MaxLost = cmp.Or(k.MaxLost, 10)
	k.Backoff.Base = cmp.Or(k.Backoff.Base, time.Second)
	k.Backoff.Cap = cmp.Or(k.Backoff.Cap, max(10*time.Minute, k.Backoff.Base))
	k.Keep = cmp.Or(k.Keep, 30*24*time.Hour)
	return k
}

// DefaultFields returns the fields of payloads that have a default, and those that a command has to give, both by name.
// For a kind whose items come into doubt, only an operator sets defaults; values of earlier commands are not used,
// because its work cannot be undone.
func (k Kind) DefaultFields() (have, varied []string) { return k.Defaults.Fields(k.inDoubt()) }

func (k Kind) inDoubt() bool { return k.OnLost == OnLostDoubt }

// delay returns the wait before the attempt after n failures (n ≥ 1); jitter is uniform in 0 … 1.
func (k Kind) delay(n int, jitter float64) time.Duration {
	b := k.WithDefaults().Backoff
	top := b.Cap
	if n < 32 && b.Base < b.Cap>>n { // base·2ⁿ without overflow
		top = b.Base << n
	}
	return time.Duration(jitter * float64(top))
}
