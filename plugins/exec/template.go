package exec

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/sdk"
)

// template is one argument of a command: text and names, in turns, beginning and ending with text
// that may be empty.
type template struct {
	text, names []string
	free        bool // a filled-in value may make it begin with a dash
}

var placeholder = lazyregexp.New(`\{\{|\}\}|\{[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z_][A-Za-z0-9_-]*)*\}|[{}]`)

// parseCommand reads a command. Its first word has no placeholders.
func parseCommand(words []string) ([]template, error) {
	all := make([]template, len(words))
	ended := false // after the argument "--"
	for i, word := range words {
		t, err := parseTemplate(word)
		if err != nil {
			return nil, fmt.Errorf("command[%d]: %w", i, err)
		}
		t.free = ended
		ended = ended || word == "--"
		all[i] = t
	}
	if len(all[0].names) > 0 {
		return nil, errors.New("command[0]: is a program's name, and has no placeholders")
	}
	return all, nil
}

func parseTemplate(word string) (template, error) {
	t := template{text: []string{""}}
	literal := func(s string) { t.text[len(t.text)-1] += s }
	at := 0
	for _, m := range placeholder().FindAllStringIndex(word, -1) {
		literal(word[at:m[0]])
		at = m[1]
		switch found := word[m[0]:m[1]]; found {
		case "{{", "}}":
			literal(found[:1])
		case "{", "}":
			return t, fmt.Errorf("%q has a brace that is not a placeholder such as {key}; write %s for a brace", word, found+found)
		default:
			t.names, t.text = append(t.names, found[1:len(found)-1]), append(t.text, "")
		}
	}
	literal(word[at:])
	if strings.Contains(word, "\x00") {
		return t, errors.New("has a NUL byte")
	}
	return t, nil
}

// fill puts in the values of the names.
func (t template) fill(value func(name string) (string, error)) (string, error) {
	var b strings.Builder
	b.WriteString(t.text[0])
	for i, name := range t.names {
		v, err := value(name)
		if err != nil {
			return "", err
		}
		b.WriteString(v)
		b.WriteString(t.text[i+1])
	}
	arg := b.String()
	switch {
	case strings.Contains(arg, "\x00"):
		return "", refuse("argument", "{%s} has a NUL byte", strings.Join(t.names, "}, {"))
	case !t.free && t.text[0] == "" && len(t.names) > 0 && strings.HasPrefix(arg, "-"):
		return "", refuse("option", "{%s} is %.100q, which the command would take for an option; it is refused unless an "+
			"argument \"--\" comes before it", t.names[0], arg)
	}
	return arg, nil
}

// refuse returns the error of an item that no attempt can work.
func refuse(code, format string, args ...any) error {
	return sdk.Permanent(sdk.Code(code, fmt.Errorf(format, args...)))
}

// value is the text for a placeholder.
func (r *run) value(name string) (string, error) {
	it, base := r.item, filepath.Base(r.item.Key)
	known := map[string]string{
		"key": it.Key, "dir": filepath.Dir(it.Key), "base": base, "stem": strings.TrimSuffix(base, filepath.Ext(base)),
		"tmp": r.tmp, "id": strconv.FormatInt(it.ID, 10), "attempt": strconv.FormatInt(it.Attempt, 10),
		"kind": it.Kind, "scope": it.Scope, "idempotency_key": it.IdempotencyKey,
	}
	if v, ok := known[name]; ok {
		return v, nil
	}
	return field(it.Payload, strings.TrimPrefix(name, "payload."))
}

// field is a field of the payload as text; a number is as it was written.
func field(payload In, name string) (string, error) {
	var raw json.RawMessage
	fields := map[string]json.RawMessage(payload)
	for part := range strings.SplitSeq(name, ".") {
		next, ok := fields[part]
		if !ok {
			return "", refuse("field", "the payload has no field %s; set it with --set %s=…", name, name)
		}
		raw, fields = next, nil
		_ = json.Unmarshal(raw, &fields) // fields stays nil if raw is no object
	}
	var text string
	switch {
	case json.Unmarshal(raw, &text) == nil && raw[0] == '"':
		return text, nil
	case strings.ContainsRune(`{[n`, rune(raw[0])):
		return "", refuse("field", "the payload's field %s is not text, a number, true or false; the command can read it "+
			"from its stdin", name)
	}
	return string(raw), nil
}
