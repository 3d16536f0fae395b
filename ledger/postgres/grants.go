package postgres

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/ledgerd/ledgerd/schema"
)

// Grants returns the GRANT statements that the owner of a ledger runs for a role. The role may then work with the
// ledger at full speed, but neither migrate it nor copy another ledger into it. name is the schema; "" means "public".
func Grants(name, role string) []string {
	name = cmp.Or(name, "public")
	name, role = quote(name), quote(role)
	all := []string{fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s;", name, role),
		fmt.Sprintf("GRANT %s ON %s.%s, %s.%s TO %s;", strings.Join(schema.MetaGrants, ", "), name, schema.Meta, name,
			schema.Table, role)}
	for _, t := range schema.Tables {
		all = append(all, fmt.Sprintf("GRANT %s ON %s.%s TO %s;", strings.Join(t.Grants, ", "), name, t.Name, role))
	}
	return append(all, grantIDs(name, role))
}

// grantIDs lets a role draw ids, so that it can insert with COPY. Without this grant INSERT is used.
func grantIDs(name, role string) string {
	return fmt.Sprintf("GRANT USAGE ON SEQUENCE %s.ledger_items_id_seq TO %s;", name, role)
}

// grantFor is the hint for a missing privilege. The server's message names the table or the schema, but not the
// privilege.
func grantFor(message string) string {
	for _, t := range schema.Tables {
		if strings.HasSuffix(message, " "+t.Name) {
			return fmt.Sprintf("to work, this user needs %s on %s; docs/care.md has all grants, also for copies; see what "+
				"is missing", strings.Join(t.Grants, ", "), t.Name)
		}
	}
	return "grant this user what it needs; docs/care.md has all grants, also for copies; see what is missing"
}
