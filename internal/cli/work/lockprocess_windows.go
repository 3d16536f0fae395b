package work

import (
	"os"
	"syscall"
)

// noGroups means that commands have no process groups on this system.
const noGroups = true

// passedOn are the signals that end the command. The system sends Ctrl-C to the command itself.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM}

func (c *locked) prepare() {}

// signal ends the command, whatever the signal is. Its children stay.
func (c *locked) signal(syscall.Signal) bool { return c.Process.Kill() == nil }

// ask does nothing: no program can be asked here. The command may end within the grace.
func (c *locked) ask() {}
