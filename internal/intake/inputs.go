// Package intake turns the inputs of the command line into items of a kind: files, folders, globs, URLs, lines of text,
// lists of these, rows of tables.
//
// The type of the kind's input ([ledger.Input]) decides what an input means. The key of a file is its absolute path,
// and its fingerprint is its size and time of change, so that a changed file is worked again. The key of a URL is its
// normal form, that of a line the trimmed text. The payload has the fields that --set gave, and the input in the field
// that the plugin named. If the plugin wants it, the payload of a file also has its time of change and its owner.
//
// Inputs are not collected: a list of a million lines is read while its items are added. An input that makes no item (a
// bad line of a list, a file of a folder that fits no pattern) comes in the same sequence, as an error of its own type,
// and does not end the sequence.
package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"strings"

	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// Types of input, the values of ledger.Input.Type.
const (
	File = "file"
	URL  = "url"
	Line = "line"
)

// Stdin is the name of standard input.
const Stdin = "-"

// Source is the inputs and options of a command.
type Source struct {
	// Template has the fields that all items share: Kind, Scope, Priority, Again …
	Template ledger.NewItem
	// ShardKey is the shard key of every item, with {key} and {NAME} to be filled in. "": that of the input, or none.
	ShardKey string
	// Input is the Input of the kind.
	Input ledger.Input
	// Payload is the object of --set, without the input; may be empty.
	Payload json.RawMessage
	// Given, if not nil, names the fields of Payload that a known item takes, see ledger.NewItem; the fields of the
	// input and of a row are added. A query that opens no known item again gives whole payloads.
	Given []string

	Args  []string     // INPUTs as typed, "-" for a list on stdin
	From  string       // file with a list of INPUTs, or "-"
	CSV   string       // file with a table, one item per row, or "-"
	JSONL string       // file with one object per line, or "-"
	Key   string       // column of the table that is the input; "" means the payload's input field, of a query DefaultKey
	Query *query.Query // saved query, one item per row
	Rules []Rule       // which files of folders are taken, after Input.Match
	// Checksum makes the SHA-256 of a file its fingerprint.
	Checksum bool
	// Flat takes only the files in a folder itself, not those in folders below.
	Flat bool
	// FollowLinks also takes what links in folders lead to; else such links are left out. A path that is an input
	// itself may always be a link.
	FollowLinks bool
	// Settled reports whether a file of a folder is complete. Nil means that a file is complete if it is old enough, or
	// has not changed at a second check.
	Settled func(path string, info fs.FileInfo) bool
	// Unended reports, at the end of a list, whether a last line without a line end is left out: it may be a part. Nil
	// means that it is whole.
	Unended func() bool
	Stdin   io.Reader

	// Parse adds assignments "column=text" to an object, by the payload's schema.
	Parse func(object []byte, assignments []string) (json.RawMessage, error)
	// Fields are the fields in the payload's schema, with their types: TextField or another.
	Fields map[string]string
	// Validate checks a payload: each one of a table, else only the first.
	Validate func(payload []byte) error
}

// Found is one item and its input, as given. A password in a URL is left out.
type Found struct {
	Input string
	Item  ledger.NewItem
}

// NotTaken is a file or folder in a folder that was left out. It does not end the sequence.
type NotTaken struct {
	Input  string `json:"input"`
	Reason string `json:"reason"`
	// Wrong: the file should have been taken, but could not. Else it was left out by a rule, its name, type or age.
	Wrong bool `json:"wrong"`
}

func (e *NotTaken) Error() string { return e.Input + ": " + e.Reason }

// Unsettled is the reason for files that are still being written.
const Unsettled = "still being written"

// NoMatch is the reason for files that match no pattern.
const NoMatch = "no match"

// IsLink is the reason for links in folders, since they may lead out of the folder.
const IsLink = "a link; name it itself to follow it"

// Hidden is the reason for files and folders whose name begins with a dot.
const Hidden = "hidden"

// Excluded is the reason for files and folders that a rule leaves out.
const Excluded = "excluded"

// MatchesNothing is the reason for a pattern on the command line that matches no file.
const MatchesNothing = "matches nothing"

// BadLine is a line of a list or a row of a table that makes no item. It does not end the sequence.
type BadLine struct {
	File   string `json:"file"` // "-" for stdin
	Line   int    `json:"line"` // from 1
	Reason string `json:"reason"`
}

func (e *BadLine) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason) }

// ArgError is a mistake in the command line.
type ArgError struct {
	Input  string // the input, as typed
	Reason string
	Hint   string // the next step; may be empty
	Err    error  // the cause, if there is one
}

func (e *ArgError) Error() string {
	if e.Input == "" {
		return e.Reason
	}
	return e.Input + ": " + e.Reason
}

func (e *ArgError) Unwrap() error { return e.Err }

// Advice returns the error for programs and people.
func (e *ArgError) Advice() (code, message, hint string) { return "bad_input", e.Error(), e.Hint }

// Check finds mistakes in the command line before anything is done, such as a file that does not exist or a malformed
// URL. The error is an *ArgError.
func (s *Source) Check() error {
	stdin := 0
	for _, name := range append([]string{s.From, s.CSV, s.JSONL}, s.Args...) {
		if name == Stdin {
			stdin++
		}
	}
	switch {
	case stdin > 1:
		return &ArgError{Input: Stdin, Reason: "stdin can be read once only"}
	case s.Query != nil:
	case len(s.Args) == 0 && s.From == "" && s.CSV == "" && s.JSONL == "":
		return &ArgError{Reason: "no INPUT", Hint: "name " + examples(s.Input.Type) + ", or - for a list on stdin"}
	case s.Key != "" && s.CSV == "" && s.JSONL == "" && s.Query == nil:
		return &ArgError{Input: "--key " + s.Key, Reason: "names a column, so it goes with a table: --from with a .csv, " +
			".jsonl or .sql file"}
	}
	if err := s.checkPayload(); err != nil {
		return err
	}
	if s.Query != nil {
		if err := s.CheckQuery(); err != nil {
			return err
		}
	}
	for _, name := range []string{s.From, s.CSV, s.JSONL} {
		if name == "" || name == Stdin {
			continue
		}
		if info, err := os.Stat(name); err != nil {
			return unusable(name, err)
		} else if info.IsDir() {
			return &ArgError{Input: name, Reason: "is a folder, not a file"}
		}
	}
	for _, a := range s.Args {
		if err := s.checkArg(a); err != nil {
			return err
		}
	}
	return s.checkGlobs()
}

// checkGlobs refuses a command line of patterns only, if none matches a file, as for names of files that do not exist.
// Beside other inputs such a pattern is NotTaken.
func (s *Source) checkGlobs() error {
	if s.Input.Type != File || s.From != "" || s.CSV != "" || s.JSONL != "" || s.Query != nil {
		return nil
	}
	for _, a := range s.Args {
		if _, err := os.Stat(a); a == Stdin || err == nil || !isGlob(a) {
			return nil
		}
		if found, err := matchesFile(a); err != nil {
			return unusable(a, err)
		} else if found {
			return nil
		}
	}
	return &ArgError{Input: strings.Join(s.Args, " "), Reason: MatchesNothing}
}

func examples(inputType string) string {
	switch inputType {
	case File:
		return "files, folders or globs"
	case URL:
		return "URLs or a file with a list of them"
	}
	return "lines of text"
}

func (s *Source) checkArg(arg string) error {
	switch {
	case arg == Stdin:
		return nil
	case s.Input.Type == File:
		return checkFile(arg)
	case s.Input.Type == URL && isFile(arg):
		return nil
	}
	n, err := s.item(arg)
	if err != nil {
		return err
	}
	if err := ledger.CheckItem(n); err != nil {
		return &ArgError{Input: shorten(s.display(arg)), Reason: err.Error(), Err: err}
	}
	return nil
}

// unusable returns the error for a named file that cannot be used.
func unusable(name string, err error) *ArgError {
	e := &ArgError{Input: name, Reason: cause(err), Err: err}
	if errors.Is(err, os.ErrNotExist) {
		e.Reason = "does not exist"
	}
	return e
}

// cause returns the text of an error of a file operation without the name, since the message has the name already.
func cause(err error) string {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// Items yields the items of the source, in the order given. Errors of type *NotTaken and *BadLine are about one input,
// and the sequence continues; any other error ends it.
func (s *Source) Items(ctx context.Context) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		r := &reader{Source: s, ctx: ctx, yield: yield}
		for _, a := range s.Args {
			if !r.arg(a) {
				return
			}
		}
		_ = (s.From == "" || r.list(s.From)) &&
			(s.CSV == "" || r.csv(s.CSV)) &&
			(s.JSONL == "" || r.jsonl(s.JSONL)) &&
			(s.Query == nil || r.query(ctx))
	}
}

// reader is one run through a source. Its methods return false when the sequence is over.
type reader struct {
	*Source
	ctx   context.Context
	yield func(Found, error) bool
	began bool // an item was yielded, so the payload was validated
}

// fatal ends the sequence.
func (r *reader) fatal(err error) bool {
	r.yield(Found{}, err)
	return false
}

// origin is the place of an input in a list; the zero value is the command line.
type origin struct {
	file string
	line int
}

// bad handles an input that makes no item: a line of a list is yielded as a BadLine, an argument ends the sequence.
func (r *reader) bad(o origin, err error) bool {
	if o.file == "" {
		return r.fatal(err)
	}
	reason := err.Error()
	if ae, ok := errors.AsType[*ArgError](err); ok && ae.Hint != "" {
		reason += " (" + ae.Hint + ")"
	}
	return r.yield(Found{}, &BadLine{o.file, o.line, reason})
}

// arg handles one INPUT of the command line.
func (r *reader) arg(a string) bool {
	switch {
	case a == Stdin:
		return r.list(Stdin)
	case r.Input.Type == URL && isFile(a):
		return r.list(a)
	}
	return r.input(a, origin{})
}

// input handles one INPUT of the command line or of a list.
func (r *reader) input(text string, o origin) bool {
	if r.Input.Type == File {
		return r.file(text, o)
	}
	n, err := r.item(text)
	if err != nil {
		return r.bad(o, err)
	}
	return r.found(text, n, o)
}

// item returns the item of an input that is not a file.
func (s *Source) item(text string) (ledger.NewItem, error) {
	n := s.Template
	fills, err := s.identify(&n, text)
	if err == nil {
		n.Given, n.Payload = s.given(nil), s.payload(fills)
	}
	return n, err
}

// identify sets the identity of the item, from an input of the kind's type, and returns the fields of the payload that
// come from the input.
func (s *Source) identify(n *ledger.NewItem, text string) (fills []fill, err error) {
	switch s.Input.Type {
	case File:
		var info fs.FileInfo
		n.Key, n.Fingerprint, info, err = s.fileIdentity(text)
		return s.fills(n.Key, info), err
	case URL:
		u, err := ParseURL(text)
		if err != nil {
			return nil, err
		}
		if n.Key = u.Key(); n.ShardKey == "" {
			n.ShardKey = u.Host()
		}
		return s.fills(u.String(), nil), nil
	}
	n.Key = trim(text)
	if n.Key == "" {
		return nil, &ArgError{Input: fmt.Sprintf("%q", shorten(text)), Reason: "is blank"}
	}
	return s.fills(n.Key, nil), nil
}

// found yields an item after the checks that all items pass.
func (r *reader) found(input string, n ledger.NewItem, o origin) bool {
	if o.file != "" && n.Source == "" {
		n.Source = fmt.Sprintf("%s:%d", o.file, o.line)
	}
	if r.ShardKey != "" {
		var err error
		if n.ShardKey, err = r.shardKey(&n); err != nil {
			return r.bad(o, err)
		}
	}
	if err := ledger.CheckItem(n); err != nil {
		return r.bad(o, &ArgError{Input: shorten(r.display(input)), Reason: err.Error(), Err: err})
	}
	if !r.began && r.Validate != nil {
		if err := r.Validate(n.Payload); err != nil {
			return r.fatal(err)
		}
	}
	r.began = true
	return r.yield(Found{r.display(input), n}, nil)
}

// display returns an input in the form in which it may be shown.
func (s *Source) display(input string) string {
	if s.Input.Type == URL {
		return redact.URLs(input)
	}
	return input
}

// shorten cuts an input that is too long to be shown.
func shorten(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…" // not half a letter
}
