package setup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/schema"
)

// roleGrants is a row of db roles.
type roleGrants struct {
	Role       schema.Role `json:"role"`
	Name       string      `json:"name"` // of the role on the server
	Statements []string    `json:"statements"`
}

// roleTexts describe the roles.
var roleTexts = map[schema.Role]string{
	schema.Reader:   "reads everything, and changes nothing",
	schema.Adder:    "adds items of kinds that exist; by SQL it can read and change all items",
	schema.Worker:   "adds and works items, and holds locks; changes no kind and does not read the journal",
	schema.Operator: "does everything but migrate, restore and copy the ledger, and set its environment",
}

func dbRolesCommand(a *app.App) *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use: "roles [reader|adder|worker|operator]", Short: "Print the SQL that makes roles for least privilege on Postgres",
		Args: app.Arguments(0, 1),
		Long: `Prints the statements that make a role of the server for each role of the ledger, or for one. It changes nothing
and needs no connection. The owner of the tables runs them, for example with psql; to make roles the owner needs the
right CREATEROLE, so ask an administrator of the server where it has none.

` + describeRoles() + `
A role has exactly the privileges that it needs. Give it to a user with GRANT, as in GRANT ledgerd_worker TO shop.
A migration may add tables, so run the statements again after it. Roles are of the whole server: where it has several
ledgers, give each its own --prefix, or a member of a role may work them all.

With -o jsonl: {"role","name","statements"} for each role.`,
		Example: "  ledgerd db roles | psql -v ON_ERROR_STOP=1 -d work\n  ledgerd db roles worker --prefix shop_",
		RunE: func(_ *cobra.Command, args []string) error {
			wanted := schema.Roles
			if len(args) > 0 {
				wanted = []schema.Role{schema.Role(args[0])}
				if !slices.Contains(schema.Roles, wanted[0]) {
					return failure.Usage("usage", "ledgerd db roles worker",
						"unknown role %q: reader, adder, worker or operator", args[0])
				}
			}
			return dbRoles(a, wanted, prefix)
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "ledgerd_", "the names of the roles begin with this `text`")
	return cmd
}

func describeRoles() string {
	var b strings.Builder
	for _, r := range schema.Roles {
		fmt.Fprintf(&b, "  %-9s %s\n", r, roleTexts[r])
	}
	return b.String()
}

func dbRoles(a *app.App, wanted []schema.Role, prefix string) error {
	at, err := a.Address()
	if err != nil {
		return err
	}
	a.WarnOfPassword()
	var all []roleGrants
	if prefix == "" || len(prefix)+len(schema.Operator) > 63 {
		return failure.Usage("usage", "ledgerd db roles --prefix shop_; Postgres cuts longer names",
			"--prefix must have 1 to %d bytes", 63-len(schema.Operator))
	}
	for _, r := range wanted {
		g := roleGrants{Role: r, Name: prefix + string(r)}
		if g.Statements = at.Grants(g.Name, r); g.Statements == nil {
			return failure.New(failure.ExitUsage, "no_roles", "this ledger's database has no roles: "+at.Brief(),
				"--db postgres://host/database names "+
					"a ledger on Postgres, which has roles\non SQLite the permissions of the file and its folder take their place")
		}
		all = append(all, g)
	}
	if p := a.Printer(); p.Format != report.Table {
		_, err := report.List(p, report.Each(all))
		return err
	}
	for _, g := range all {
		_, err := fmt.Fprintf(a.Stdout, "-- %s: %s\n%s\n\n", g.Role, roleTexts[g.Role], strings.Join(g.Statements, "\n"))
		if err != nil {
			return err
		}
	}
	return nil
}
