package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger"
)

// masked replaces a value that the caller may not see.
const masked = "(hidden)"

// secrets are the names of the fields of payloads that only an admin may read: plugins mark some as secret, and the
// config hides others. The answer to a claim has their values all the same, because the work needs them.
type secrets struct {
	reader *ledger.Ledger

	mu     sync.Mutex
	hidden []string            // for every kind, from the config
	byKind map[string][]string // marked by plugins, read from the ledger at readAt
	readAt time.Time
}

const secretsTime = time.Second // how old byKind may be

// hide sets the fields that are hidden in payloads of every kind.
func (s *secrets) hide(fields []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden = slices.Clone(fields)
}

// of returns the fields of a kind; with "" those of all kinds.
func (s *secrets) of(ctx context.Context, kind string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.readAt) >= secretsTime {
		kinds, err := s.reader.Kinds(ctx)
		if err != nil {
			return nil, err
		}
		s.byKind, s.readAt = map[string][]string{}, time.Now()
		for _, k := range kinds {
			s.byKind[k.Name] = k.Input.Secret
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
	fields, err := c.api.secrets.of(c.Context(), kind)
	if err != nil || len(fields) == 0 {
		return text, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil { // it has no fields
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

// asks checks that the caller may see the fields on which a filter has conditions: an answer reveals their values.
func (c *Call) asks(f ledger.Filter) error {
	fields := fieldsOf(f)
	if len(fields) == 0 {
		return nil
	}
	if err := c.allowed(access.Payload); err != nil || c.Grant.May(access.Admin) {
		return err
	}
	hidden, err := c.api.secrets.of(c.Context(), "")
	if err != nil {
		return err
	}
	for _, t := range fields {
		if t.Of == "payload" && slices.ContainsFunc(t.Path, func(name string) bool { return slices.Contains(hidden, name) }) {
			return failure.New(failure.ExitDenied, "scope", fmt.Sprintf("the field %s is hidden from the token %s",
				strings.Join(t.Path, "."), c.Grant.Name), "a token with scope admin may ask for it")
		}
	}
	return nil
}

// fieldsOf are the conditions of a filter on fields of payload and output.
func fieldsOf(f ledger.Filter) []ledger.FieldTerm {
	all := slices.Clone(f.Fields)
	for _, g := range f.Also {
		all = append(all, fieldsOf(g)...)
	}
	return all
}
