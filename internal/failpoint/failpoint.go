// Package failpoint names the worst moments for a process to die, so that the chaos harness can kill it there: between
// the last statement of a transaction and its commit, between the commit and its answer, between an effect and its
// report.
//
// In a released program, [Here] is an empty function that the compiler removes. With the build tag chaos, the
// environment variable LEDGERD_FAILPOINT arms one point for one passage:
//
//	LEDGERD_FAILPOINT=sqlite.committed:3        kills the process at the third passage
//	LEDGERD_FAILPOINT=sqlite.committed:3:stop   freezes it there (SIGSTOP)
package failpoint

// Points are the names that programs pass to [Here]. Points of the form call.before and call.after are around most
// calls of a ledger.Store that write; see internal/recorder.
var Points = []string{
	"claim.before", "claim.after", "complete.before", "complete.after", "update.before", "update.after",
	"renew.before", "renew.after", "start.before", "start.after", "promote.before", "promote.after",
	"beat.before", "beat.after", "close.before", "close.after",
	"sqlite.commit", "sqlite.committed", "postgres.commit", "postgres.committed",
	"worker.claimed", "worker.handed", "worker.settled", "worker.recorded", "worker.stopping",
}
