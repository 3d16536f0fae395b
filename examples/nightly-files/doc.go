// Package nightlyfiles tests the example of README.md with real processes on both databases: six ways
// in which machines that share a table of files work some of them twice, or leave some, and that
// ledgerd does neither.
package nightlyfiles
