package redact

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Shortest is the least number of bytes of a value that is hidden: to hide "1" would hide every 1 of a text.
const Shortest = 4

// Secrets knows the values that must not be seen. The zero value and nil know none. It may be used from
// many goroutines.
type Secrets struct {
	mu    sync.RWMutex
	forms []string // of all values, without duplicates
}

// New returns a Secrets that knows these values.
func New(values ...string) *Secrets {
	s := &Secrets{}
	s.Add(values...)
	return s
}

// Add makes more values known. A value of several lines is hidden line by line as well, since it is often
// printed so. Values shorter than Shortest are left out.
func (s *Secrets) Add(values ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, value := range values {
		for _, part := range append(strings.Split(value, "\n"), value) {
			if part = strings.TrimSpace(part); len(part) < Shortest {
				continue
			}
			for _, form := range forms(part) {
				if !slices.Contains(s.forms, form) {
					s.forms = append(s.forms, form)
				}
			}
		}
	}
}

// forms are a value as it is and as programs write it.
func forms(value string) []string {
	all := []string{value, url.QueryEscape(value), url.PathEscape(value), url.UserPassword("", value).String()[1:]}
	for _, quote := range []func(string) string{strconv.Quote, strconv.QuoteToASCII, quoteJSON, quoteJSONForHTML} {
		quoted := quote(value)
		all = append(all, quoted[1:len(quoted)-1])
	}
	return append(all, strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value)) // of a DSN of Postgres
}

func quoteJSON(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string is always JSON
	return strings.TrimSuffix(b.String(), "\n")
}

func quoteJSONForHTML(text string) string {
	quoted, _ := json.Marshal(text) // a string is always JSON
	return string(quoted)
}

// Hide puts the Mask in the place of every value.
func (s *Secrets) Hide(text string) string {
	if s == nil {
		return text
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	// The text that is left may form a value again. Each turn makes the text shorter: the mask is shorter than a value.
	for {
		spans := s.find(text)
		if len(spans) == 0 {
			return text
		}
		var b strings.Builder
		end := 0
		for _, at := range spans {
			b.WriteString(text[end:at.from] + Mask)
			end = at.to
		}
		text = b.String() + text[end:]
	}
}

// span is a part of a text, in bytes; to is behind its end.
type span struct{ from, to int }

// find returns where the values are, in order. Values that overlap are one span.
func (s *Secrets) find(text string) (spans []span) {
	for _, form := range s.forms {
		for from := 0; ; {
			i := strings.Index(text[from:], form)
			if i < 0 {
				break
			}
			spans = append(spans, span{from + i, from + i + len(form)})
			from += i + 1
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
	merged := spans[:0]
	for _, at := range spans {
		if last := len(merged) - 1; last >= 0 && at.from < merged[last].to {
			merged[last].to = max(merged[last].to, at.to)
			continue
		}
		merged = append(merged, at)
	}
	return merged
}

// JSON is Hide for JSON. The result is JSON, too: if a value stood outside of a string, such as a number, the whole
// document becomes one string.
func (s *Secrets) JSON(raw []byte) []byte {
	shown := s.Hide(string(raw))
	if shown == string(raw) {
		return raw
	}
	if json.Valid([]byte(shown)) {
		return []byte(shown)
	}
	return []byte(s.Hide(quoteJSON(shown)))
}

// Text hides the values, and all that the function Text hides.
func (s *Secrets) Text(text string) string { return s.Hide(Text(s.Hide(text))) }

// Error returns an error that wraps err and has its text without the values.
func (s *Secrets) Error(err error) error {
	if err == nil {
		return nil
	}
	shown := s.Hide(err.Error())
	if shown == err.Error() {
		return err
	}
	return &hiddenError{shown, err}
}

type hiddenError struct {
	text string
	err  error
}

func (e *hiddenError) Error() string { return e.text }
func (e *hiddenError) Unwrap() error { return e.err }
