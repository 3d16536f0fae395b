// Package source adds items to a ledger from folders, lists and saved queries.
//
// A look at a source adds everything that is there. Items that the ledger knows stay as they are, so an extra look
// costs time and changes nothing. A daemon that may have missed something (it starts, or takes over from another)
// simply looks. So a source needs no state of its own in the ledger.
//
// The schedule decides when to look, by the clock of this machine. For folders, notifications of the operating system
// are a hint to look earlier. They may be lost or doubled, and network file systems have none. After a hint, the next
// look waits for the settle time, and for twenty times the duration of the look before. So a huge folder under constant
// change costs a twentieth of a processor.
//
// A file is taken when it is no longer being written: when it was last changed longer ago than the settle time and a
// minute, or when its size and time of change have stayed the same for the settle time. The settle time is measured by
// the monotonic clock of this machine, so the clock of a file server may be ahead, or behind by less than the minute. A
// file that grows later is a new version of itself, and is worked again.
//
// A look, and not the worker, puts finished files away: the answer to adding a file reports whether its item is done in
// this version. The file first gets a hidden name and is checked again, so that a version that came in the last moment
// stays.
//
// Of several daemons, the one that has the named lock "source/NAME" looks. It keeps the lock as long as it lives; the
// others try to get the lock now and then. A folder that only one machine sees (local = true) needs no lock. Its kind
// must be worked on that machine only: a look refuses to add while another machine works the kind.
//
// A source that fails is looked at again after a growing pause. Other sources go on.
package source
