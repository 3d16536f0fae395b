// Package daemon has the parts of a worker that runs unattended: the sources that fill its ledger, its
// notices to systemd, and its answers about its health.
//
// It knows no plugins. The program supplies the workers as functions that report their health, so a
// hung part shows as an answer that does not come.
//
//	/livez    answers 200 as long as all parts answer
//	/readyz   answers 200 if something can be written to the ledger (tried at most every two seconds)
//	/metrics  Prometheus
//
// These paths need no password and are for a loopback address. Labels of metrics and codes of /readyz have few values:
// names of kinds, sources, states and outcomes; never ids, keys, hosts or texts of errors. The log explains each code.
package daemon
