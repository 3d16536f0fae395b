package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a configuration, or not wise.
type Problem struct {
	File    string // the config file; "" if it is the environment, or a flag
	Line    int    // from 1; 0 if it is about no place in the file
	Column  int    // in characters, from 1
	Env     string // the variable
	Flag    string // "--db"
	Key     string // "kinds.urlcheck.timeout"; "" if it is about none
	Message string // without values of secrets
	Hint    string // what to do, or what was meant; may be empty
	Sick    bool   // a plugin gave no answer; the configuration may be right

	text   string // of the line
	length int    // of what is meant, in characters
}

// Where is the place as compilers write it: "ledgerd.toml:12:3".
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

// String is place and message, then the line with a mark below what is meant, and the hint.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Message)
	if where := p.Where(); where != "" {
		b.Reset()
		b.WriteString(where + ": " + p.Message)
	}
	if p.Line == 0 || p.text == "" {
		if p.Hint != "" {
			b.WriteString("\n  " + p.Hint)
		}
		return b.String()
	}
	number := fmt.Sprintf("  %3d | ", p.Line)
	text, before, length := p.shown()
	fmt.Fprintf(&b, "\n%s%s\n%s| %s%s", number, text, strings.Repeat(" ", len(number)-2), strings.Repeat(" ", before), strings.Repeat("^", length))
	if p.Hint != "" {
		b.WriteString(" " + p.Hint)
	}
	return b.String()
}

// shown cuts a long line and writes tabs as spaces, so that the mark stands where it should.
func (p Problem) shown() (text string, before, length int) {
	const most = 100
	line := []rune(strings.TrimRight(p.text, " \t\r"))
	at := min(max(0, p.Column-1), len(line))
	if length = max(1, p.length); at > most/2 {
		line, at = append([]rune("…"), line[at-most/4:]...), most/4+1
	}
	if len(line) > most {
		line = append(line[:most], '…')
	}
	text = strings.ReplaceAll(string(line), "\t", "    ")
	before = len([]rune(strings.ReplaceAll(string(line[:at]), "\t", "    ")))
	return text, before, max(1, min(length, len([]rune(text))-before))
}

// Error is everything that is wrong with a configuration.
type Error struct{ Problems []Problem }

// Error lists all problems, with their lines.
func (e *Error) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.String()
	}
	return strings.Join(texts, "\n")
}

// Mistakes are the problems of the configuration itself, without those of plugins that gave no answer; nil
// if there are none. Other errors stay as they are.
func Mistakes(err error) error {
	bad, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	return asError(slices.DeleteFunc(slices.Clone(bad.Problems), func(p Problem) bool { return p.Sick }))
}

// maxProblems are told; whoever has more has given the wrong file.
const maxProblems = 100

// asError sorts problems by their place; none are no error.
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

// problem is about a place in the file.
func (d *document) problem(at place, format string, args ...any) Problem {
	p := Problem{File: d.path, Line: at.line, Column: at.column, Message: fmt.Sprintf(format, args...), length: at.length}
	if at.line >= 1 && at.line <= len(d.lines) {
		p.text = d.lines[at.line-1]
	}
	return p
}
