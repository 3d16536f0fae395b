package pluginhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// prefix of the programs of plugins.
const prefix = "ledgerd-plugin-"

// Place is where a plugin's program is.
type Place struct {
	Name    string // "" if it is whatever the program calls itself
	Path    string
	Args    []string
	Origin  string  // "config", "--plugin-dir", "data", "beside ledgerd" or "bundled"
	Shadows []Place // the same plugin at places that are looked at later
}

// Finder looks for plugins: among those whose place is configured, in the folders in their order,
// then among the bundled ones.
type Finder struct {
	Configured []Place
	Folders    []Folder
	// Bundled are the names of the plugins that Self holds: started with the plugin's cookie in
	// its environment and the name as its only argument, it is the plugin.
	Bundled []string
	Self    string
}

// Folder is a folder with plugins. One that does not exist is as good as empty.
type Folder struct{ Path, Origin string }

// ErrNotFound says that there is no plugin of that name.
var ErrNotFound = errors.New("no such plugin")

// Find returns the plugin of that name: the first that is found, with what it shadows.
// Whether it may be started is looked at when it is.
func (f *Finder) Find(name string) (Place, error) {
	all, err := f.List()
	if err != nil {
		return Place{}, err
	}
	i := slices.IndexFunc(all, func(p Place) bool { return p.Name == name })
	if i < 0 {
		return Place{}, fmt.Errorf("plugin %q: %w", name, ErrNotFound)
	}
	return all[i], nil
}

// List returns all plugins, by name.
func (f *Finder) List() ([]Place, error) {
	found := map[string]*Place{}
	add := func(p Place) {
		if first := found[p.Name]; first != nil {
			first.Shadows = append(first.Shadows, p)
		} else {
			found[p.Name] = &p
		}
	}
	for _, place := range f.Configured {
		add(place)
	}
	for _, folder := range f.Folders {
		entries, err := os.ReadDir(folder.Path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("plugins in %s: %w", folder.Path, err)
		}
		for _, e := range entries {
			if name, ok := strings.CutPrefix(e.Name(), prefix); ok && name != "" && !e.IsDir() {
				add(Place{Name: name, Path: filepath.Join(folder.Path, e.Name()), Origin: folder.Origin})
			}
		}
	}
	for _, name := range f.Bundled {
		add(Place{Name: name, Path: f.Self, Args: []string{name}, Origin: "bundled"})
	}
	var all []Place
	for _, p := range found {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b Place) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
