package answer

import "slices"

// Me is the token of the caller, with its rights.
type Me struct {
	Name   string   `json:"name"`   // of the token
	Scopes []string `json:"scopes"` // all that it may do; with admin, every scope
	Kinds  []string `json:"kinds"`  // it sees and touches only these; empty: all
	Agent  string   `json:"agent"`  // prefix of the names under which it claims
}

// May reports whether a scope is among those of the caller.
func (m Me) May(scope string) bool { return slices.Contains(m.Scopes, scope) }
