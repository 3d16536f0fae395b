// Package nightlyfiles tests the lines of README.md on both databases: four machines start at once.
package nightlyfiles
