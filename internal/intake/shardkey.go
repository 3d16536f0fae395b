package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/ledgerd/ledgerd/ledger"
)

// placeholder is a part of a template that an item fills in.
var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// shardKey is the shard key of an item by the template of the Source: {key} stands for the key of the item and {NAME}
// for a field of its payload, text or number.
func (s *Source) shardKey(n *ledger.NewItem) (string, error) {
	var fields map[string]json.RawMessage
	var failed error
	filled := placeholder.ReplaceAllStringFunc(s.ShardKey, func(part string) string {
		name := part[1 : len(part)-1]
		if name == "key" {
			return n.Key
		}
		if fields == nil && json.Unmarshal(n.Payload, &fields) != nil {
			fields = map[string]json.RawMessage{}
		}
		text, err := scalar(fields[name])
		if err == nil && text == "" {
			err = errors.New("is empty")
		}
		if err != nil && failed == nil {
			failed = &ArgError{Input: "--shard-key " + s.ShardKey, Reason: fmt.Sprintf("field %q of the payload %v", name, err)}
		}
		return text
	})
	return filled, failed
}
