package intake

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/ledger"
)

// placeholder matches a part of a template that is filled in for each item.
var placeholder = lazyregexp.New(`\{[^{}]*\}`)

// shardKey returns the shard key of an item by the template of the Source: {key} is the key of the item and {NAME} a
// field of its payload, a text or a number.
func (s *Source) shardKey(n *ledger.NewItem) (string, error) {
	var fields map[string]json.RawMessage
	var failed error
	filled := placeholder().ReplaceAllStringFunc(s.ShardKey, func(part string) string {
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
