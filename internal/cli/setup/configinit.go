package setup

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/failure"
)

func configInitCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "init", Short: "Write a commented config file to begin with", Args: func(cmd *cobra.Command,
			args []string) error {
			if len(args) == 1 && !strings.HasPrefix(args[0], "-") {
				return failure.Usage("usage", "ledgerd config init --config "+args[0], "%s: the file is named by a flag",
					cmd.CommandPath())
			}
			return app.Arguments(0, 0)(cmd, args)
		},
		Annotations: map[string]string{app.WithoutConfig: "yes"},
		Long: `Writes the file that --config names, else the one of the user, $XDG_CONFIG_HOME/ledgerd/ledgerd.toml.
Its settings are the defaults, or commented out. An existing file is not changed.

With -o json: {"file"}.`,
		Example: "  ledgerd config init\n  ledgerd config init --config /etc/ledgerd/ledgerd.toml",
		RunE: func(*cobra.Command, []string) error {
			return configInit(a)
		},
	}
}

func configInit(a *app.App) error {
	path := cmp.Or(a.ConfigFile, config.UserFile(os.LookupEnv))
	if path == "" {
		return failure.Usage("no_home", "name a file: --config FILE", "there is no home directory for the config file")
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = writeNew(path, config.Example)
	}
	if errors.Is(err, fs.ErrExist) {
		return failure.Usage("exists", "look at it: ledgerd config print    another place: --config FILE",
			"%s is there already and was left alone", path)
	}
	if err != nil {
		return err
	}
	return app.One(a, struct {
		File string `json:"file"`
	}{path}, path)
}

// writeNew writes a file that must not exist, for its owner alone: it may come to hold a secret.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
