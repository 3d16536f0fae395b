// Package feeds tests the example of README.md with real processes on both databases: readers that are
// killed while feeds grow, editors who share what they find, and a daemon.
package feeds
