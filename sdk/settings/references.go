package settings

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// checkReferences refuses a schema in which a reference leads back to itself without a step into the
// value: looking at any value by it would never end, and take the process down. secrets is how many schemas in it are
// writeOnly.
func checkReferences(schema []byte) (secrets int, err error) {
	r := references{followed: map[string]bool{}}
	if err := json.Unmarshal(schema, &r.root); err != nil {
		return 0, err
	}
	err = r.all(r.root, aSchema)
	return r.secrets, err
}

// references is the state of checkReferences.
type references struct {
	root     any
	followed map[string]bool // reference → whether it has been followed to its end
	secrets  int
}

// part is the role of a value within a schema.
type part int

const (
	aSchema part = iota
	schemas      // an object with schemas by name: its keys are no keywords
	data         // a value such as a default: it marks no secrets
)

// within is the role of the value with a key in a value with role p.
func (p part) within(key string) part {
	switch {
	case p == data:
		return data
	case p == schemas:
		return aSchema
	case slices.Contains([]string{"default", "examples", "enum", "const"}, key):
		return data
	case slices.Contains([]string{"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}, key):
		return schemas
	}
	return aSchema
}

// all looks at every object within a value.
func (r *references) all(at any, p part) error {
	switch at := at.(type) {
	case []any:
		for _, inner := range at {
			if err := r.all(inner, p); err != nil {
				return err
			}
		}
	case map[string]any:
		if p == aSchema && at["writeOnly"] == true {
			r.secrets++
		}
		if err := r.follow(at); err != nil {
			return err
		}
		for key, inner := range at {
			if err := r.all(inner, p.within(key)); err != nil {
				return err
			}
		}
	}
	return nil
}

// follow goes to the schemas that are applied to the same value as this one.
func (r *references) follow(schema any) error {
	s, ok := schema.(map[string]any)
	if !ok {
		return nil
	}
	if _, ok := s["$dynamicRef"].(string); ok {
		return fmt.Errorf("$dynamicRef is not supported")
	}
	if ref, ok := s["$ref"].(string); ok {
		if err := r.reference(ref); err != nil {
			return err
		}
	}
	for _, word := range []string{"not", "if", "then", "else"} {
		if err := r.follow(s[word]); err != nil {
			return err
		}
	}
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := s[word].([]any)
		for _, inner := range list {
			if err := r.follow(inner); err != nil {
				return err
			}
		}
	}
	byName, _ := s["dependentSchemas"].(map[string]any)
	for _, inner := range byName {
		if err := r.follow(inner); err != nil {
			return err
		}
	}
	return nil
}

// reference follows a $ref to its target.
func (r *references) reference(ref string) error {
	switch ended, known := r.followed[ref]; {
	case ended:
		return nil
	case known:
		return fmt.Errorf("$ref %q leads back to itself", ref)
	}
	target, ok := r.find(ref)
	if !ok {
		return fmt.Errorf("$ref %q leads nowhere within the schema", ref)
	}
	r.followed[ref] = false
	err := r.follow(target)
	r.followed[ref] = true
	return err
}

// find looks up the target of a $ref: "#" and a JSON pointer (RFC 6901).
func (r *references) find(ref string) (at any, ok bool) {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok || path != "" && path[0] != '/' {
		return nil, false
	}
	at = r.root
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if path == "" {
			break
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch inner := at.(type) {
		case map[string]any:
			at, ok = inner[part]
		case []any:
			i, err := strconv.Atoi(part)
			if ok = err == nil && i >= 0 && i < len(inner); ok {
				at = inner[i]
			}
		default:
			ok = false
		}
		if !ok {
			return nil, false
		}
	}
	return at, true
}
