// Package template makes the beginning of a plugin: a folder with a plugin that works, its tests and what
// to do next. It writes the files in the folders beside this one, with the plugin's name in place of
// "sample". They are not text with gaps but programs, with tests of their own.
package template

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/sdk/node"
	"github.com/ledgerd/ledgerd/sdk/python"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

//go:embed all:ledgerd-plugin-sample all:node python sh
var files embed.FS

// sample is the name that the templates have.
const sample = "sample"

// languages are the folders of the templates.
var languages = map[string]string{"go": "ledgerd-plugin-sample", "node": "node", "python": "python", "sh": "sh"}

// Languages lists what Write knows.
func Languages() []string { return slices.Sorted(maps.Keys(languages)) }

// CheckName returns the error in the name of a plugin.
func CheckName(name string) error {
	if !wire.NameForm().MatchString(name) {
		return fmt.Errorf("%q is not a name for a plugin: small letters, digits and -, at most 64 of them, and no - in front",
			name)
	}
	return nil
}

// Write makes the folder dir and returns the names of the files in it. dir must not exist. version is that of ledgerd's
// module, for a plugin in Go; a version that is no release means the newest there is. clone is "" or a folder with
// ledgerd's sources: a plugin in Go then takes the SDK from there.
func Write(dir, name, language, version, clone string) ([]string, error) {
	folder, known := languages[language]
	if !known {
		return nil, fmt.Errorf("no template for %q", language)
	}
	if err := CheckName(name); err != nil {
		return nil, err
	}
	absolute, err := filepath.Abs(dir)
	texts := map[string][]byte{} // by name of the file
	var place []string           // DIR, and the path in its place
	err = errors.Join(err, collect(texts, files, folder, ""))
	switch language {
	case "go":
		texts["go.mod"] = goMod(version, clone != "")
		place = []string{"DIR", strconv.Quote(filepath.ToSlash(clone))}
	case "node":
		err = errors.Join(err, collect(texts, node.Files, ".", "ledgerd"))
		for _, name := range []string{"package.json", "package-lock.json", ".npmrc"} {
			texts[name] = forPlugin(texts["ledgerd/"+name])
		}
		delete(texts, "ledgerd/package-lock.json")
		delete(texts, "ledgerd/.npmrc")
	case "python":
		err = errors.Join(err, collect(texts, python.Files, ".", "src"))
	case "sh":
		place = []string{"DIR", quoted.Replace(absolute)}
	}
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err != nil {
		return nil, err
	}
	names, err := write(dir, name, texts, append(place, sample, name))
	if err != nil {
		_ = os.RemoveAll(dir) // it has no other files: Mkdir above has made it
	}
	return names, err
}

// collect reads the files of folder into texts, under their names below the folder named below.
func collect(texts map[string][]byte, from fs.FS, folder, below string) error {
	return fs.WalkDir(from, folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rest, err := filepath.Rel(folder, name)
		if err != nil {
			return err
		}
		texts[filepath.ToSlash(filepath.Join(below, rest))], err = fs.ReadFile(from, name)
		return err
	})
}

// write writes the files of the plugin name, and returns their names. replace has texts of the template, each before
// its replacement. They are replaced in one pass, because a path may have the template's name in it.
func write(dir, name string, texts map[string][]byte, replace []string) (names []string, err error) {
	r := strings.NewReplacer(replace...)
	for file, text := range texts {
		if !strings.HasPrefix(file, "ledgerd/") { // the SDK is the same for all
			file, text = r.Replace(file), []byte(r.Replace(string(text)))
		}
		if slices.Contains(names, file) {
			return nil, fmt.Errorf("%q is not a name for this plugin: there would be two files %s in it", name, file)
		}
		path := filepath.Join(dir, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		mode := fs.FileMode(0o644)
		if bytes.HasPrefix(text, []byte("#!")) {
			mode = 0o755
		}
		if err := os.WriteFile(path, text, mode); err != nil {
			return nil, err
		}
		names = append(names, file)
	}
	slices.Sort(names)
	return names, nil
}

// quoted escapes a path for a string of TOML that is an argument of a command, where braces are special, too.
var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "{", "{{", "}", "}}")

// release matches versions that the module proxy has: not those of a build with local changes.
var release = lazyregexp.New(`^v\d+\.\d+\.\d+(-(0\.)?\d{14}-[0-9a-f]{12})?$`)

// Released reports whether a version is a release, and no commit: its module can be had from everywhere.
func Released(version string) bool {
	return release().MatchString(version) && !strings.Contains(version, "-")
}

// goVersion is the oldest Go that builds the SDK.
const goVersion = "1.26.0"

func goMod(version string, cloned bool) []byte {
	text := fmt.Sprintf("module example.com/ledgerd-plugin-%s\n\ngo %s\n", sample, goVersion)
	const ours = "github.com/ledgerd/ledgerd"
	switch {
	case cloned:
		text += fmt.Sprintf("\nrequire %s v0.0.0\n\n// A clone of ledgerd. Without this line it is a release.\n"+
			"replace %s => DIR\n", ours, ours)
	case release().MatchString(version):
		text += "\nrequire " + ours + " " + version + "\n"
	}
	return []byte(text)
}

// forPackage matches the fields of package.json that the SDK needs only to be a package for others.
var forPackage = lazyregexp.New(`(?s)  "description": .*  "files": [^\n]*\n`)

// forPlugin is the SDK's package.json, or its lock, as a plugin's own.
func forPlugin(text []byte) []byte {
	text = bytes.ReplaceAll(text, []byte(`"ledgerd-plugin"`), []byte(`"ledgerd-plugin-`+sample+`"`))
	return forPackage().ReplaceAll(text, []byte("  \"private\": true,\n"))
}
