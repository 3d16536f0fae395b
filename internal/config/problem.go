package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// Problem is one fault of a configuration, or a warning.
type Problem struct {
	File    string // the config file; "" if it is the environment, or a flag
	Line    int    // from 1; 0 if it has no place in the file
	Column  int    // in bytes, from 1
	Env     string // the variable
	Flag    string // "--db"
	Key     string // "kinds.urlcheck.timeout"; "" if it is about no key
	Message string // without values of secrets
	Hint    string // what to do, or what was meant; may be empty
	Sick    bool   // a plugin gave no answer; the configuration may be right
}

// Where returns the place as compilers write it: "ledgerd.toml:12:3".
func (p Problem) Where() string {
	switch {
	case p.Flag != "":
		return p.Flag
	case p.Env != "":
		return p.Env
	case p.Line == 0:
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// String is one line: "ledgerd.toml:12:3: lease: must be 5s … 24h, not 1s; hint". It quotes no line of the file, since
// that may hold a secret.
func (p Problem) String() string { return p.what() + report.Prefixed("; ", p.Hint) }

// what returns place, key and message.
func (p Problem) what() string {
	text := p.Message
	if p.Line > 0 && p.Key != "" {
		text = p.Key + ": " + text
	}
	if where := p.Where(); where != "" {
		text = where + ": " + text
	}
	return text
}

// Error has all problems of a configuration.
type Error struct{ Problems []Problem }

// Error lists all problems, one per line.
func (e *Error) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.String()
	}
	return strings.Join(texts, "\n")
}

// Advice returns the parts of the error for programs and people.
func (e *Error) Advice() (code, message, hint string) {
	if n := len(e.Problems); n > 1 {
		return "bad_config", fmt.Sprintf("%d problems in the configuration", n), e.Error()
	}
	return "bad_config", e.Problems[0].what(), e.Problems[0].Hint
}

// Mistakes returns the problems of the configuration itself, without those of plugins that gave no answer; nil if
// there are none. It returns other errors unchanged.
func Mistakes(err error) error {
	bad, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	return asError(slices.DeleteFunc(slices.Clone(bad.Problems), func(p Problem) bool { return p.Sick }))
}

// maxProblems is how many problems are reported. A greater number means that the wrong file was given.
const maxProblems = 100

// asError sorts problems by place and returns them as an error; nil if there are none.
func asError(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Env, b.Env))
	})
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems], Problem{Message: fmt.Sprintf("and %d more", more)})
	}
	return &Error{problems}
}

// problem returns a problem with the value of a key, at the place of the value.
func (c *Config) problem(path string, err error) Problem {
	from := c.origins[path]
	p := Problem{Env: from.Env, Flag: from.Flag, Key: path, Message: err.Error(), Hint: ledger.Hint(err)}
	if from.Env == "" && from.Flag == "" {
		at := c.doc.at(path)
		p.File, p.Line, p.Column = c.doc.path, at.Line, at.Column
	}
	return p
}

// faultf returns the error about a value. For a hint, make a *ledger.Error.
func faultf(format string, args ...any) *ledger.Error {
	return &ledger.Error{Message: fmt.Sprintf(format, args...)}
}
