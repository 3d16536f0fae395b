// Package photos tests the sessions of README.md: a folder of pictures that becomes thumbnails, with the
// program that people use.
package photos
