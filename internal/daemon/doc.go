// Package daemon holds what makes a worker something that a team leaves running: the sources that fill
// its ledger, what it tells systemd, and what it answers to those who ask how it is.
//
// It knows no plugins. Who works the kinds is brought along by the program, in the form of functions
// that say how it is; so a hung part shows as an answer that does not come.
//
//	/livez    answers 200 as long as all parts answer
//	/readyz   answers 200 if something can be written to the ledger (tried at most every two seconds)
//	/metrics  Prometheus
//
// They ask for no password and are for a loopback address. Labels of metrics are names of kinds, sources,
// states and outcomes, of which there are few; never ids, keys, hosts or texts of errors; neither has /readyz, which gives codes. What is behind a code the log says.
package daemon
