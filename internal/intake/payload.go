package intake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/payload"
)

// checkPayload refuses a --set of a field that the input fills.
func (s *Source) checkPayload() error {
	fields, err := s.fields()
	if err == nil {
		err = payload.CheckText(s.Payload)
	}
	if err != nil {
		return &ArgError{Input: "--set", Reason: err.Error(), Err: err}
	}
	for _, field := range s.inputFields() {
		if value, given := fields[field]; given && field != "" {
			return &ArgError{Input: fmt.Sprintf("--set %s=%s", field, value), Reason: "is the field that INPUT fills",
				Hint: "leave it out and name the input itself"}
		}
	}
	return nil
}

func (s *Source) fields() (map[string]json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if len(s.Payload) == 0 {
		return fields, nil
	}
	err := json.Unmarshal(s.Payload, &fields)
	return fields, err
}

// payload returns the fields of --set after those that the input fills. The same input and settings give the same
// bytes, because the ledger compares them.
func (s *Source) payload(fills []fill) []byte {
	rest := bytes.TrimSpace(s.Payload)
	if len(fills) == 0 {
		if len(rest) == 0 || bytes.Equal(rest, []byte("{}")) {
			return nil
		}
		return rest
	}
	out := []byte("{")
	for i, f := range fills {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, quote(f.field)...), ':'), quote(f.value)...)
	}
	if len(rest) > 2 { // not an empty object
		return append(append(out, ','), rest[1:]...)
	}
	return append(out, '}')
}

// rowPayload returns the payload of a row: its fields replace those of --set, in the order of names. The input fills
// its fields unless the row has them from other columns.
func (s *Source) rowPayload(row map[string]json.RawMessage, fills []fill) ([]byte, error) {
	fields, err := s.fields()
	if err != nil {
		return nil, err
	}
	maps.Copy(fields, row)
	for _, f := range fills {
		_, own := row[f.field]
		if s.Query != nil { // NULL is no input
			own = slices.ContainsFunc(s.Query.Columns, func(c query.Column) bool { return c.Name == f.field })
		}
		if !own || s.column() == f.field {
			fields[f.field] = quote(f.value)
		}
	}
	if len(fields) == 0 {
		return nil, nil
	}
	payload := ledger.JSON(fields)
	if s.Validate != nil {
		err = s.Validate(payload)
	}
	return payload, err
}

// given returns the fields of a payload that a known item takes. row is nil for an item that comes from no row.
func (s *Source) given(row map[string]json.RawMessage) []string {
	if s.Given == nil || s.Query != nil && s.Template.Again == (ledger.Again{}) {
		return nil
	}
	names := slices.Clone(s.Given)
	for _, field := range s.inputFields() {
		if field != "" {
			names = append(names, field)
		}
	}
	return slices.AppendSeq(names, maps.Keys(row))
}

// quote returns a JSON string in which & < > are not escaped.
func quote(text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string can always be encoded
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
