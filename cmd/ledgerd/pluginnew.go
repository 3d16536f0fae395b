package main

import (
	"cmp"
	"errors"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/sdk/template"
)

func (a *app) pluginNewCommand() *cobra.Command {
	lang := choice{value: "go", of: template.Languages()}
	var dir string
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Make a folder with a plugin to begin with", Args: arguments(1, 1),
		Annotations: map[string]string{withoutConfig: "yes"},
		Long: `Writes the folder ledgerd-plugin-NAME with a plugin that works, its tests, and a README that says what
to do next. --lang sh is a script that the plugin exec runs. What is there already is left alone: the
folder must not exist. With -o json: {"name","lang","dir","files","next"}.`,
		Example: "  ledgerd plugin new thumbs\n  ledgerd plugin new thumbs --lang node",
		RunE: func(_ *cobra.Command, args []string) error {
			return a.pluginNew(args[0], lang.value, cmp.Or(dir, "ledgerd-plugin-"+args[0]))
		},
	}
	cmd.Flags().Var(&lang, "lang", "what it is written in")
	cmd.Flags().StringVar(&dir, "dir", "", "`folder` to make (default ledgerd-plugin-NAME)")
	return cmd
}

func (a *app) pluginNew(name, lang, dir string) error {
	if err := template.CheckName(name); err != nil {
		return usage("bad_name", "for example: ledgerd plugin new word-count", "%v", err)
	}
	if bundled[name] != nil {
		return usage("bad_name", "all plugins: ledgerd plugin ls", "%s is a plugin that ledgerd has already; choose another name", name)
	}
	files, err := template.Write(dir, name, lang, programVersion())
	if errors.Is(err, fs.ErrExist) {
		return usage("exists", "choose another with --dir, or remove it", "%s is there already", dir)
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
	}{name, lang, dir, files, append([]string{"cd " + dir}, template.Next(name, lang)...)}
	return one(a, made, "made "+dir+": "+strings.Join(ownFiles(files), " ")+"\nnext:\n  "+strings.Join(made.Next, "\n  "))
}

// ownFiles leaves out the SDK, which is no file to begin with.
func ownFiles(files []string) (own []string) {
	for _, f := range files {
		if !strings.HasPrefix(f, "ledgerd/") {
			own = append(own, f)
		}
	}
	return own
}
