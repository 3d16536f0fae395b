package pluginhost

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ledgerd/ledgerd/internal/pluginstore"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Place is the program of a plugin: its path, and where it was found.
type Place struct {
	Name    string // "": the description of the program gives the name
	Path    string
	Args    []string
	Origin  string  // "config", "--plugin-dir", "data", "beside ledgerd" or "bundled"
	Shadows []Place // plugins of the same name at later places; they are not used
	SHA256  string  // of the program when it was added; "" if it was not added
	// Broken is the reason why the plugin must not be started; "" if it may. The plugin was added, but the link with
	// its checksum was replaced.
	Broken string
	linked Linked // nil if the plugin is not part of this program
}

// Linked returns the description of a plugin that is part of this program, without starting a process.
type Linked func() (*wire.DescribeResponse, error)

// Same reports whether both places have the same path, checksum and arguments.
func (p Place) Same(other Place) bool {
	return p.Path == other.Path && p.SHA256 == other.SHA256 && slices.Equal(p.Args, other.Args)
}

// Finder looks for plugins: first the configured ones, then the folders in their order, then the bundled ones.
type Finder struct {
	Configured []Place
	Folders    []Folder
	// Bundled are the plugins in the program Self, by name. Self runs as a plugin if its environment has the cookie
	// of plugins and its only argument is the name.
	Bundled map[string]Linked
	Self    string
}

// Folder is a folder with plugins. A folder that does not exist has none.
type Folder struct{ Path, Origin string }

// place is the plugin with this name in the folder. For an added plugin the link is resolved here, so a link that
// changes later does not change the place.
func (f Folder) place(name string) Place {
	p := Place{Name: name, Path: filepath.Join(f.Path, pluginstore.Prefix+name), Origin: f.Origin}
	if a, ok := pluginstore.Read(p.Path); ok {
		p.Path, p.SHA256 = a.Path, a.SHA256
	} else if (pluginstore.Store{Dir: f.Path}).Has(name) {
		p.Broken = "it was added, and what has its name now is not the link to its program"
	}
	return p
}

// ErrNotFound means that there is no plugin of that name.
var ErrNotFound = errors.New("no such plugin")

// Find returns the first plugin with that name, and those that it shadows. It does not check whether the plugin may be
// started; the start does. Errors: ErrNotFound, and those of reading a folder.
func (f *Finder) Find(name string) (Place, error) {
	all, err := f.list(func(folder string) ([]string, error) {
		if name != filepath.Base(name) { // not the name of a file
			return nil, nil
		}
		switch info, err := os.Lstat(filepath.Join(folder, pluginstore.Prefix+name)); {
		case errors.Is(err, syscall.ENAMETOOLONG) || err == nil && info.IsDir():
			return nil, nil
		case err != nil:
			return nil, err
		}
		return []string{name}, nil
	})
	if err != nil {
		return Place{}, err
	}
	i := slices.IndexFunc(all, func(p Place) bool { return p.Name == name })
	if i < 0 {
		return Place{}, fmt.Errorf("plugin %q: %w", name, ErrNotFound)
	}
	return all[i], nil
}

// List returns all plugins, sorted by name.
func (f *Finder) List() ([]Place, error) {
	return f.list(func(folder string) (names []string, err error) {
		entries, err := os.ReadDir(folder)
		for _, e := range entries {
			if name, ok := strings.CutPrefix(e.Name(), pluginstore.Prefix); ok && name != "" && !e.IsDir() {
				names = append(names, name)
			}
		}
		return names, err
	})
}

// list returns plugins sorted by name: all configured and bundled ones, and those that namesIn returns for each folder.
func (f *Finder) list(namesIn func(folder string) (names []string, err error)) ([]Place, error) {
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
		names, err := namesIn(folder.Path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("plugins in %s: %w", folder.Path, err)
		}
		for _, name := range names {
			add(folder.place(name))
		}
	}
	for name, linked := range f.Bundled {
		add(Place{Name: name, Path: f.Self, Args: []string{name}, Origin: "bundled", linked: linked})
	}
	var all []Place
	for _, name := range slices.Sorted(maps.Keys(found)) {
		all = append(all, *found[name])
	}
	return all, nil
}
