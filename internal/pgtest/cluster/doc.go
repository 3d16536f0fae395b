// Package cluster starts temporary Postgres servers from the programs installed on this machine
// and makes sure that each of them ends.
//
// A server has a home, a folder in /tmp or TMPDIR with its data, its socket, its log, and a lock file. The process
// that started it holds a shared lock on that file; the kernel drops the lock when the process ends, however it ends.
// A keeper (this same program, started again by [Start]) waits for the exclusive lock. Then it stops the server and
// deletes its data. So a test that panics, runs into its time limit or is killed with SIGKILL leaves nothing behind.
//
// The server listens on 127.0.0.1, where it asks for a password (SCRAM), and on a socket in a
// folder of mode 0700, where it does not. It refuses to run as root; when root calls, it runs as
// the user postgres or nobody.
//
// The server sorts text by the rules of a language, and its time zone is not UTC, as on most servers of users. So a
// query that relies on byte order or on UTC fails in a test.
package cluster
