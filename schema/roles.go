package schema

import (
	"slices"
	"strings"
)

// Role is what a user of a ledger on Postgres may do. A user may have several.
type Role string

// The roles. None of them may migrate a ledger or copy another one into it: that is for the owner of the tables.
const (
	Reader   Role = "reader"   // reads everything, and changes nothing
	Adder    Role = "adder"    // adds items of kinds that exist
	Worker   Role = "worker"   // adds and works items, and holds locks, but changes no kind and reads no journal
	Operator Role = "operator" // does everything
)

// Roles are all roles.
var Roles = []Role{Reader, Adder, Worker, Operator}

// Privileges returns the privileges on the table that a role needs, no more and no fewer.
func (c Content) Privileges(r Role) (all []string) {
	letters := "r" // of Meta and Table: they have no Key
	if i := slices.Index(Roles, r); c.Key != nil {
		letters = c.grants[i]
	}
	for _, name := range []string{"r SELECT", "a INSERT", "w UPDATE", "d DELETE"} {
		if strings.Contains(letters, name[:1]) {
			all = append(all, name[2:])
		}
	}
	return all
}
