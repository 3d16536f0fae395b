// Package video tests the sessions of README.md: the plugin exec runs ffmpeg for each video of a folder.
//
// "make test-video" runs it with ffmpeg. "make test" uses the scripts of the folder standin instead,
// since ffmpeg is a download of some 55 MB. They take the same arguments, print the same lines and
// convert nothing.
package video
