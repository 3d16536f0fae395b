// Package video tests the example of README.md with real processes: videos of a folder are converted
// by ffmpeg, which the plugin exec runs; processes are killed, and nothing is converted twice.
//
// "make test-video" runs it with ffmpeg. "make test" uses the scripts of the folder standin instead of
// ffmpeg, which is a download of some 55 MB. They take the same arguments, print the same lines and
// convert nothing.
package video
