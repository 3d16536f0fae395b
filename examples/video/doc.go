// Package video tests the example of README.md with real processes: videos of a folder are converted
// by ffmpeg, which the plugin exec runs; processes are killed, and nothing is converted twice.
//
// "make test-video" runs it with ffmpeg. "make test" has the scripts of the folder standin in ffmpeg's
// place, which take the same arguments, say the same things and convert nothing: ffmpeg is a download
// of some 55 MB.
package video
