// Package nightlyfiles tests the example of README.md with real processes on both databases.
package nightlyfiles
