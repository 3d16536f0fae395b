package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/payload"
)

// masked replaces a value that the caller may not see.
const masked = "(hidden)"

// secrets are the names of the fields of payloads that only an admin may read: plugins mark some as secret, and the
// config hides others. The answer to a claim has their values nevertheless, because the work needs them.
type secrets struct {
	reader *ledger.Ledger

	mu     sync.Mutex
	hidden []string            // for every kind, from the config
	byKind map[string][]string // marked by plugins, read from the ledger at readAt
	readAt time.Time
}

const secretsTime = time.Second // how old byKind may be

// setHidden sets the fields that are hidden in payloads of every kind.
func (s *secrets) setHidden(fields []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden = slices.Clone(fields)
}

// fields returns the names of the hidden fields of a kind, or with "" of all kinds.
func (s *secrets) fields(ctx context.Context, kind string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.readAt) >= secretsTime {
		kinds, err := s.reader.Kinds(ctx)
		if err != nil {
			return nil, err
		}
		s.byKind, s.readAt = map[string][]string{}, time.Now()
		for _, k := range kinds {
			for _, path := range k.Input.Secret {
				name := path[strings.LastIndexByte(path, '.')+1:] // a field is masked at any depth
				s.byKind[k.Name] = append(s.byKind[k.Name], name)
			}
		}
	}
	if kind != "" {
		return slices.Concat(s.hidden, s.byKind[kind]), nil
	}
	all := slices.Clone(s.hidden)
	for _, fields := range s.byKind {
		all = append(all, fields...)
	}
	return all, nil
}

// payload is the payload of an item as the caller may see it.
func (c *Call) payload(kind string, text []byte) ([]byte, error) {
	if !c.Grant.May(access.Payload) {
		return nil, nil
	}
	if len(text) == 0 || c.Grant.May(access.Admin) {
		return text, nil
	}
	fields, err := c.api.secrets.fields(c.Context(), kind)
	if err != nil || len(fields) == 0 {
		return text, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil || d.Decode(new(any)) != io.EOF {
		if mayContain(string(text), fields) {
			return ledger.JSON(masked), nil
		}
		return text, nil
	}
	if !mask(value, fields) {
		return text, nil
	}
	return ledger.JSON(value), nil
}

// mask replaces the values of fields, at any depth, and reports whether it has found one.
func mask(value any, fields []string) (found bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			if slices.Contains(fields, name) {
				v[name], found = masked, true
			} else if mask(inner, fields) {
				found = true
			}
		}
	case []any:
		for _, inner := range v {
			found = mask(inner, fields) || found
		}
	}
	return found
}

// mayContain reports whether a text may contain the name of a field, as it is or escaped.
func mayContain(text string, fields []string) bool {
	return strings.Contains(text, `\u`) || slices.ContainsFunc(fields, func(name string) bool { return strings.Contains(text, name) })
}

// checkFilter checks the conditions of a filter on fields of payloads and outputs. It refuses fields that the caller
// may not see, because the answer reveals their values. Conditions do not look into hidden fields within an object.
func (c *Call) checkFilter(f ledger.Filter) (ledger.Filter, error) {
	left := maxParts
	return c.checkPart(f, &left)
}

// maxParts bounds the parts of a filter and their conditions on fields: a database takes a condition only up to some
// depth. A text has up to 200 terms, and commands add a few parts.
const maxParts = 250

// checkPart is checkFilter of a part of a filter. left is how many parts the filter may still have.
func (c *Call) checkPart(f ledger.Filter, left *int) (ledger.Filter, error) {
	if *left -= max(1, len(f.Fields)); *left < 0 {
		return f, bad("filter", "", "the filter has more than %d parts", maxParts)
	}
	f.Fields = slices.Clone(f.Fields)
	for i, t := range f.Fields {
		if !slices.Contains([]string{"payload", "output"}, t.Of) || !slices.Contains([]string{":", "~", ">", "<"}, t.Op) ||
			len(t.Path) == 0 || len(t.Values) == 0 {
			return f, bad("filter", "", "has no valid condition on a field")
		}
		hidden, err := c.mayRead(t.Of, t.Path)
		if err != nil {
			return f, err
		}
		f.Fields[i].Hidden = hidden
	}
	f.Also = slices.Clone(f.Also)
	for i, g := range f.Also {
		var err error
		if f.Also[i], err = c.checkPart(g, left); err != nil {
			return f, err
		}
	}
	return f, nil
}

// mayRead checks that the caller may see a field of the payload or the output. hidden are the names of fields that the
// caller may not see within it.
func (c *Call) mayRead(of string, path []string) (hidden []string, err error) {
	if err := c.allowed(access.Payload); err != nil || of != "payload" || c.Grant.May(access.Admin) {
		return nil, err
	}
	if hidden, err = c.api.secrets.fields(c.Context(), ""); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(path, func(name string) bool { return slices.Contains(hidden, name) }) {
		return nil, failure.New(failure.ExitDenied, "scope", fmt.Sprintf("the field %s is hidden from the token %s",
			strings.Join(path, "."), c.Grant.Name), "a token with scope admin may ask for it")
	}
	return hidden, nil
}

// hiddenFields are the fields of the payloads of a kind that the caller may not see.
type hiddenFields struct {
	all   bool // the caller may see no payload
	names []string
	err   error // the names could not be read: all fields are hidden
}

// hiddenOf returns the fields of a kind that the caller may not see.
func (c *Call) hiddenOf(kind string) hiddenFields {
	h := hiddenFields{all: !c.Grant.May(access.Payload)}
	if !c.Grant.May(access.Admin) {
		h.names, h.err = c.api.secrets.fields(c.Context(), kind)
	}
	return h
}

// hides reports whether the default of a field, by its dotted name, is hidden, in part or as a whole.
func (h hiddenFields) hides(field string, d payload.Default) bool {
	isHidden := func(name string) bool { return slices.Contains(h.names, name) }
	if h.all || h.err != nil || slices.ContainsFunc(strings.Split(field, "."), isHidden) {
		return true
	}
	var value any
	return json.Unmarshal(d.Value, &value) == nil && mask(value, h.names)
}

// from returns the defaults that the caller may see.
func (h hiddenFields) from(d payload.Defaults) payload.Defaults {
	d = maps.Clone(d)
	maps.DeleteFunc(d, h.hides)
	if len(d) == 0 {
		return nil
	}
	return d
}

// changed returns a field whose default an edit changes although the caller may not see it; "": there is none.
func (h hiddenFields) changed(have, want payload.Defaults) string {
	for _, field := range slices.Sorted(maps.Keys(want)) {
		if h.hides(field, want[field]) && !bytes.Equal(want[field].Value, have[field].Value) {
			return field
		}
	}
	return ""
}

// keep returns the defaults after an edit: those of have that the caller may not see, else those of want.
func (h hiddenFields) keep(have, want payload.Defaults) payload.Defaults {
	kept := payload.Defaults{}
	maps.Copy(kept, h.from(want))
	for field, def := range have {
		if h.hides(field, def) {
			kept[field] = def
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// maskEntries masks the details of journal entries that the caller may not see. A filter as it was typed, or a default
// of a kind, has values of payloads.
func (c *Call) maskEntries(all []ledger.JournalEntry, err error) ([]ledger.JournalEntry, error) {
	names := []string{"payload.", "output.", "defaults"} // in details with such values
	if c.Grant.May(access.Admin) || err != nil {
		return all, err
	}
	if c.Grant.May(access.Payload) {
		if names, err = c.api.secrets.fields(c.Context(), ""); err != nil {
			return nil, err
		}
	}
	for i, e := range all {
		if len(names) > 0 && mayContain(e.Detail, names) {
			all[i].Detail = masked
		}
	}
	return all, nil
}

// maskVerdicts changes the verdict "differs" into "known" where the caller may not see the whole payload. With
// "differs" a caller could guess hidden values: it confirms or refutes each guess.
func (c *Call) maskVerdicts(items []ledger.NewItem, added []ledger.Added) {
	for i, it := range items {
		if added[i].Verdict != ledger.VerdictDiffers || c.Grant.May(access.Admin) {
			continue
		}
		h := c.hiddenOf(it.Kind)
		// With Given a caller could guess field by field; without it, a guess is right only if the whole payload is.
		if h.all && it.Given != nil || len(h.names) > 0 || h.err != nil {
			added[i].Verdict = ledger.VerdictKnown
		}
	}
}
