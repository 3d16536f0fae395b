package app

import (
	"bufio"
	"context"
	"fmt"
	"os/user"
	"strings"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
)

// Actor returns the name of the person who runs this command, for the journal: "operator:USER".
func Actor() string {
	if u, err := user.Current(); err == nil {
		return "operator:" + u.Username
	}
	return "operator"
}

// Confirm asks a question on a terminal and returns an error unless the answer is yes. With -y it does not ask. Without
// a terminal it is an error, with look, how to see what would be done, as the hint.
func (a *App) Confirm(question, look string) error {
	if a.Yes {
		return nil
	}
	if !IsTerminal(a.Stdin) || !IsTerminal(a.Stderr) {
		return failure.Usage("not_confirmed", look+"   do it: -y", "%s there is no terminal to answer on", question)
	}
	fmt.Fprintf(a.Stderr, "%s [y/N] ", report.Safe(question))
	var answer string
	if err := a.Await(func() { answer, _ = bufio.NewReader(a.Stdin).ReadString('\n') }); err != nil {
		return err
	}
	if s := strings.ToLower(strings.TrimSpace(answer)); s != "y" && s != "yes" {
		return failure.New(failure.ExitError, "not_confirmed", "nothing was changed", "")
	}
	return nil
}

// Await runs a function that reads stdin until it has ended or a signal asks the program to stop. After an error read
// still runs, so the variables that it sets must not be used.
func (a *App) Await(read func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		read()
	}()
	select {
	case <-done:
		return nil
	case <-a.Soft.Done():
		return context.Cause(a.Soft)
	}
}
