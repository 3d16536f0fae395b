// Package act names what can be done next about an item, a kind or a ledger.
//
// Package ledger returns acts, with its reasons and with its errors. A program words them for people, or offers them:
// the command line prints the command of each, and writes them as objects into its JSON.
package act

// Name is the name of an act.
type Name string

// Acts on items.
const (
	Retry   Name = "retry"   // make Item ready again
	Reopen  Name = "reopen"  // work Item once more, though it has ended
	Finish  Name = "finish"  // decide how Item ended
	Cancel  Name = "cancel"  // give Item up
	Release Name = "release" // take back what Agent has leased; only if that program is surely gone
)

// Acts on kinds.
const (
	Resume        Name = "resume"         // end the pause of Kind
	SetLimit      Name = "set-limit"      // change the limit Field of Kind
	Work          Name = "work"           // start a worker of Kind and Shard; of every kind if there is none
	Claim         Name = "claim"          // lease an item of Kind as a person or script
	ShowErrors    Name = "show-errors"    // look at what failed of Kind
	InstallPlugin Name = "install-plugin" // install Plugin on this machine
)

// Acts on a ledger.
const (
	Migrate    Name = "migrate"     // make the ledger, or bring its schema up to date
	ShowSchema Name = "show-schema" // look at which schema the ledger has
	Copy       Name = "copy"        // copy the ledger to another place
	Examine    Name = "examine"     // have the database examined
	Restored   Name = "restored"    // begin another incarnation of the ledger
	Moved      Name = "moved"       // record where the database of the ledger is now

	SetEnvironment Name = "set-environment" // record which environment the ledger is of
)

// Act is one thing that can be done. The arguments that its name does not use are empty.
type Act struct {
	Name   Name   `json:"act,omitempty"` // empty: there is no act
	Item   int64  `json:"item,omitempty"`
	Kind   string `json:"kind,omitempty"`
	Field  string `json:"field,omitempty"` // "max_running"
	Shard  string `json:"shard,omitempty"` // "1/4", from 0
	Agent  string `json:"agent,omitempty"`
	Plugin string `json:"plugin,omitempty"`
}
