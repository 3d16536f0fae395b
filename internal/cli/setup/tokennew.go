package setup

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// newToken is what token new prints.
type newToken struct {
	Name   string   `json:"name"`
	Token  string   `json:"token"`
	SHA256 string   `json:"sha256"`
	Scopes []string `json:"scopes"`
	Kinds  []string `json:"kinds"`
	Agent  string   `json:"agent"`
	Config string   `json:"config"` // lines for the config file
}

func tokenNewCommand(a *app.App) *cobra.Command {
	t := newToken{}
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Make a token, and print what goes into the config", Args: app.Arguments(1, 1),
		Annotations: map[string]string{app.WithoutConfig: "yes"},
		Long: `Makes a token for the HTTP API. The token goes to stdout, once: it is kept nowhere. The lines for the config of the
server go to stderr; they have its SHA-256 alone. The server takes the token once it has them.

With -o json: {"name","token","sha256","scopes","kinds","agent","config"}.`,
		Example: "  ledgerd token new shop --scope read,add --kind mail\n  ledgerd token new box-a --scope work --agent box-a",
		RunE: func(cmd *cobra.Command, args []string) error {
			t.Name = args[0]
			err := t.check()
			if err == nil {
				err = t.make()
			}
			if err != nil {
				return err
			}
			if p := a.Printer(); p.Format == report.Table && !a.Quiet {
				fmt.Fprintf(a.Stderr, "for the config of the server:\n\n%s\n", t.Config)
			}
			return app.One(a, t, t.Token)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&t.Scopes, "scope", []string{string(access.Read)}, "`scopes`: "+access.ScopeNames())
	f.StringSliceVar(&t.Kinds, "kind", []string{}, "only for these `kinds` (default: all)")
	f.StringVar(&t.Agent, "agent", "", "it claims only under names that begin with this `text`")
	return cmd
}

func (t *newToken) check() error {
	if (ledger.Kind{Name: t.Name}).CheckName() != nil { // it is a key of the config, as a kind's name is
		return failure.Usage("invalid", "", "%q is not a name of a token: only a-z, 0-9 and -, not - first", t.Name)
	}
	for _, name := range t.Kinds {
		if err := kinds.CheckKind(name); err != nil {
			return err
		}
	}
	for _, s := range t.Scopes {
		if !slices.Contains(access.Scopes, access.Scope(s)) {
			return failure.Usage("bad_flag", "", "--scope %s: no scope; there are %s", s, access.ScopeNames())
		}
	}
	return nil
}

// make makes the token and its lines for the config.
func (t *newToken) make() error {
	t.Token = access.NewToken()
	hash := access.Hash(t.Token)
	t.SHA256 = hex.EncodeToString(hash[:])
	lines, err := toml.Marshal(struct {
		SHA256 string   `toml:"sha256"`
		Scopes []string `toml:"scopes"`
		Kinds  []string `toml:"kinds,omitempty"`
		Agent  string   `toml:"agent,omitempty"`
	}{t.SHA256, t.Scopes, t.Kinds, t.Agent})
	t.Config = "[api.tokens." + t.Name + "]\n" + strings.TrimSpace(string(lines))
	return err
}
