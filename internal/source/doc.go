// Package source fills a ledger from where work comes from: folders, lists, saved queries.
//
// A look at a source adds everything that is there. Items that the ledger knows stay as they are, so
// an extra look costs time and changes nothing. A daemon that may have missed something (it starts,
// or takes over from another) simply looks. That is why nothing is kept between looks but hints, and
// why a source needs no state of its own in the ledger.
//
// The schedule decides when to look, by the clock of this machine. For folders the operating system's
// notes of changes are a hint to look earlier: they are lost, doubled, and not given at all for
// network file systems. A hinted look comes no sooner than the settle time after the hint, and than
// twenty times the duration of the look before. So a huge folder under constant change costs a
// twentieth of a processor.
//
// A file is taken once it is written no more: when it was last changed longer ago than the settle
// time and a minute, or when its size and time of change have stayed the same for the settle time.
// This machine's monotonic clock measures it, so a file server whose clock is ahead, or behind by less
// than the minute, is no trouble. A file that goes on growing later is another version of itself, and
// is worked again.
//
// A look also decides about a finished file, never the worker: the answer to adding it reports whether
// its item is done in just this version. The file is put aside under a hidden name first and looked
// at once more, so that a version that came in the last moment stays.
//
// Of several daemons one looks, the one that has the named lock "source/NAME". It keeps the lock as
// long as it lives; the others ask for it now and then. A folder that only one machine sees
// (local = true) needs no lock, but a kind that no other machine works: a look refuses to add while
// one does.
//
// A source that fails is looked at again after a growing pause; it stops no other one.
package source
