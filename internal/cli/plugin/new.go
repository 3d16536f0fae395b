package plugin

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/version"
	"github.com/ledgerd/ledgerd/sdk/template"
)

func pluginNewCommand(a *app.App) *cobra.Command {
	lang := app.ChoiceFlag{Value: "go", Of: template.Languages()}
	var dir, sdk string
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Make a folder with a plugin to begin with", Args: app.Arguments(1, 1),
		Annotations: map[string]string{app.WithoutConfig: "yes"},
		Long: `Writes the folder ledgerd-plugin-NAME with a plugin that works, its tests, and a README with the
next steps. --lang sh writes a script that the plugin exec runs. The folder must not exist: no file is
overwritten. A plugin in Go takes the SDK from the clone that --sdk names, else from the clone that ledgerd
was built in, if it was (both by replace in go.mod), else in the version of this ledgerd. With -o json: {"name","lang","dir","files","next"}.`,
		Example: "  ledgerd plugin new thumbs\n  ledgerd plugin new thumbs --lang python",
		RunE: func(_ *cobra.Command, args []string) error {
			clone, err := sdkFrom(sdk, lang.Value)
			if err != nil {
				return err
			}
			return pluginNew(a, args[0], lang.Value, cmp.Or(dir, "ledgerd-plugin-"+args[0]), clone)
		},
	}
	cmd.Flags().Var(&lang, "lang", "what it is written in")
	cmd.Flags().StringVar(&dir, "dir", "", "`folder` to make (default ledgerd-plugin-NAME)")
	cmd.Flags().StringVar(&sdk, "sdk", "", "`folder` of a clone of ledgerd, for a plugin in Go")
	return cmd
}

// sdkFrom returns the folder of the clone from which a plugin in Go takes the SDK, "" if it takes a release.
func sdkFrom(folder, lang string) (string, error) {
	if folder == "" {
		return version.Clone(), nil
	}
	if lang != "go" {
		return "", failure.Usage("bad_flag", "leave out --sdk", "--sdk is for plugins in Go; a plugin in %s has its SDK with it", lang)
	}
	clone, err := filepath.Abs(folder)
	if err == nil && !version.IsClone(clone) {
		err = failure.Usage("bad_flag", "name the folder that git clone made", "--sdk %s: is not a clone of ledgerd", folder)
	}
	return clone, err
}

func pluginNew(a *app.App, name, lang, dir, clone string) error {
	if err := template.CheckName(name); err != nil {
		return failure.Usage("bad_name", "for example: ledgerd plugin new word-count", "%v", err)
	}
	if a.Program.Plugins[name] != nil {
		return failure.Usage("bad_name", "all plugins: ledgerd plugin ls",
			"%s is a plugin that ledgerd has already; choose another name", name)
	}
	files, err := template.Write(dir, name, lang, version.String(), clone)
	if errors.Is(err, fs.ErrExist) {
		return failure.Usage("exists", "choose another with --dir, or remove it", "%s is there already", dir)
	}
	if err != nil {
		return err
	}
	made := struct {
		Name  string   `json:"name"`
		Lang  string   `json:"lang"`
		Dir   string   `json:"dir"`
		Files []string `json:"files"`
		Next  []string `json:"next"`
	}{name, lang, dir, files, append([]string{"cd " + dir}, firstSteps(name, lang, clone)...)}
	return app.One(a, made, "made "+dir+": "+strings.Join(ownFiles(files), " ")+"\nnext:\n  "+strings.Join(made.Next,
		"\n  "))
}

// firstSteps returns the commands that test a new plugin and run it, in its folder.
func firstSteps(name, lang, clone string) []string {
	check, run := "ledgerd plugin check ./ledgerd-plugin-"+name, "ledgerd run "+name+" --plugin-dir . README.md"
	switch lang {
	case "go":
		tidy := "go mod tidy"
		if clone == "" && !template.Released(version.String()) {
			tidy += "   # if it does not find the SDK, make the folder again with --sdk CLONE, a clone of ledgerd"
		}
		return []string{tidy, "go test ./...", "go build", check, run}
	case "node":
		return []string{"npm ci", "node --test", check, run, "node ledgerd/bundle.js ledgerd-plugin-" + name +
			" dist/ledgerd-plugin-" + name, "ledgerd plugin add dist/ledgerd-plugin-" + name}
	case "python":
		return []string{"python3 -c 'import grpc, google.protobuf, cryptography'   # missing? see README.md", "python3 -m unittest", `python3 -m zipapp src -m plugin:plugin.main -p "/usr/bin/env python3" -o ledgerd-plugin-` + name, check, run}
	default:
		return []string{"sh test.sh", "ledgerd --config ledgerd.toml run " + name + " README.md"}
	}
}

// ownFiles leaves out the files of the SDK.
func ownFiles(files []string) []string {
	return slices.DeleteFunc(slices.Clone(files), func(f string) bool {
		return strings.HasPrefix(f, "ledgerd/") || strings.HasPrefix(f, "src/ledgerd_plugin/")
	})
}
