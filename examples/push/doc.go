// Package push tests the sessions of README.md on both databases, with the program that people use.
package push
