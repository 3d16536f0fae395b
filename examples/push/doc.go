// Package push tests the example of README.md with real processes on both databases: jobs that pick
// their own users and mail some of them twice, and what ledgerd does in their place.
package push
