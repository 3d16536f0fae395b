package postgres

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/schema"
)

// Grants returns the GRANT statements that the owner of a ledger runs for a user, or for a role of the server. The user
// may then do what a role of the ledger may. name is the schema; "" means "public".
func Grants(name, user string, may schema.Role) []string {
	name = quote(cmp.Or(name, "public"))
	user = quote(user)
	all := []string{fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s;", name, user)}
	all = append(all, lacks(nil, may, name, user)...)
	if may != schema.Reader {
		all = append(all, grantIDs(name, user))
	}
	return all
}

// allTables are all tables of a ledger.
var allTables = append([]schema.Content{{Name: schema.Meta}, {Name: schema.Table}}, schema.Tables...)

// rolesOf returns the roles whose privileges a user has, by table. If these roles do not need all that the user has,
// another role was meant and is not whole: meant is the first one that needs all that the user has, else operator.
func rolesOf(has map[string][]string) (whole []schema.Role, meant schema.Role) {
	beyond := maps.Clone(has) // privileges that no role of whole needs
	for _, r := range schema.Roles {
		if len(lacks(has, r, "", "")) > 0 {
			continue
		}
		whole = append(whole, r)
		for _, t := range allTables {
			beyond[t.Name] = except(beyond[t.Name], t.Privileges(r))
		}
	}
	covered := func(left func(t schema.Content) []string) bool {
		return !slices.ContainsFunc(allTables, func(t schema.Content) bool { return len(left(t)) > 0 })
	}
	if len(whole) > 0 && covered(func(t schema.Content) []string { return beyond[t.Name] }) {
		return whole, ""
	}
	for _, r := range schema.Roles {
		if covered(func(t schema.Content) []string { return except(has[t.Name], t.Privileges(r)) }) {
			return whole, r
		}
	}
	return whole, schema.Operator
}

// join lists roles.
func join(roles []schema.Role) string {
	words := make([]string, len(roles))
	for i, r := range roles {
		words[i] = string(r)
	}
	return strings.Join(words, ", ")
}

// lacks returns the statements that give a user what a role needs and the user does not have.
func lacks(has map[string][]string, r schema.Role, schemaName, user string) (all []string) {
	for _, t := range allTables {
		if some := except(t.Privileges(r), has[t.Name]); len(some) > 0 {
			all = append(all, fmt.Sprintf("GRANT %s ON %s.%s TO %s;", strings.Join(some, ", "), schemaName, t.Name, user))
		}
	}
	return all
}

// except returns what is in one list and not in the other.
func except(one, other []string) []string {
	return slices.DeleteFunc(slices.Clone(one), func(s string) bool { return slices.Contains(other, s) })
}

// grantIDs lets a role draw ids, so that it can insert with COPY. Without this grant INSERT is used.
func grantIDs(name, role string) string {
	return fmt.Sprintf("GRANT USAGE ON SEQUENCE %s.ledger_items_id_seq TO %s;", name, role)
}

// grantFor is the hint for a missing privilege. The server's message names the table or the schema, but not the
// privilege.
func grantFor(message string) string {
	for _, t := range schema.Tables {
		if !strings.HasSuffix(message, " "+t.Name) {
			continue
		}
		var needs []string
		for _, r := range schema.Roles {
			if some := t.Privileges(r); len(some) > 0 {
				needs = append(needs, fmt.Sprintf("%s %s", r, strings.Join(some, ", ")))
			}
		}
		return fmt.Sprintf("what the roles need on %s: %s; docs/care.md explains them; see what is missing", t.Name,
			strings.Join(needs, "; "))
	}
	return "grant this user what it needs; docs/care.md has the roles, and the rights for copies; see what is missing"
}
