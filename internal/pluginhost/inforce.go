package pluginhost

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// longestShown are bounds in bytes of one value. inForce tries them in this order, until the whole config fits into
// bounds.MaxConfig.
var longestShown = []int{500, 50, 0}

// inForce returns the config that the ledger keeps for people. It has the defaults. Secrets and possible secrets are
// masked, and long values are replaced by their length. It is "" if it is still longer than bounds.MaxConfig.
func (d *Description) inForce(config []byte) (string, error) {
	whole, err := d.Config.InForce(config)
	if err != nil {
		return "", err
	}
	var shown string
	for _, longest := range longestShown {
		var value map[string]any
		dec := json.NewDecoder(bytes.NewReader(whole))
		dec.UseNumber()
		if err := dec.Decode(&value); err != nil {
			return "", err
		}
		text, err := plainJSON(show(value, longest))
		if err != nil {
			return "", err
		}
		if shown = string(text); len(shown) <= bounds.MaxConfig {
			return shown, nil
		}
	}
	return "", nil
}

// show masks possible secrets in a value, and replaces parts with more than longest bytes. It changes maps in place.
func show(value any, longest int) any {
	switch v := value.(type) {
	case string:
		return short(redact.Text(v), longest)
	case []any:
		args := make([]string, len(v))
		for i, part := range v {
			var isText bool
			if args[i], isText = part.(string); !isText {
				args = nil
				break
			}
		}
		if args != nil {
			return short(redact.Args(args), longest)
		}
		for i, part := range v {
			v[i] = show(part, longest)
		}
		return short(v, longest)
	case map[string]any:
		for name, inner := range v {
			if redact.SecretName(name) {
				inner = mask(inner)
			}
			v[name] = show(inner, longest)
		}
	}
	return value
}

// mask masks all text in a value. It changes it in place.
func mask(value any) any {
	switch v := value.(type) {
	case string:
		if v != "" {
			return redact.Mask
		}
	case []any:
		for i := range v {
			v[i] = mask(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = mask(v[name])
		}
	}
	return value
}

// short returns the value, or a text with its length if its JSON has more bytes than longest.
func short(value any, longest int) any {
	text, err := plainJSON(value)
	if err != nil || len(text) <= longest {
		return value
	}
	return fmt.Sprintf("… (%d bytes)", len(text))
}

// plainJSON writes JSON without escaping & < >.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
