// Package feeds tests the sessions of README.md: feeds whose entries become articles, with the program that people use.
package feeds
