package pluginhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ledgerd/ledgerd/internal/pluginstore"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Place is where a plugin's program is.
type Place struct {
	Name    string // "" for the name that the program gives itself
	Path    string
	Args    []string
	Origin  string  // "config", "--plugin-dir", "data", "beside ledgerd" or "bundled"
	Shadows []Place // the same plugin at places that are looked at later
	SHA256  string  // under which the program was added, "" if it was not
	// Broken is why nothing is started from here, "" mostly: of a plugin that was added somebody has replaced the
	// link that carries its checksum.
	Broken string
	linked Linked // nil for other programs than this one
}

// Linked is the description of a plugin that is part of this program. No process has to be started for it.
type Linked func() (*wire.DescribeResponse, error)

// Same reports whether the program at another place is the same one.
func (p Place) Same(as Place) bool {
	return p.Path == as.Path && p.SHA256 == as.SHA256 && slices.Equal(p.Args, as.Args)
}

// Finder looks for plugins: among those whose place is configured, in the folders in their order,
// then among the bundled ones.
type Finder struct {
	Configured []Place
	Folders    []Folder
	// Bundled are the plugins that Self holds, by name: started with the plugin's cookie in
	// its environment and the name as its only argument, it is the plugin.
	Bundled map[string]Linked
	Self    string
}

// Folder is a folder with plugins. One that does not exist is as good as empty.
type Folder struct{ Path, Origin string }

// place is the plugin of a name in a folder. Of one that was added it is the program that the link
// led to when it was looked at: a changed link starts another program, not this one.
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

// Find returns the plugin of that name: the first that is found, with what it shadows.
// Whether it may be started is looked at when it is.
func (f *Finder) Find(name string) (Place, error) {
	all, err := f.list(func(folder string) ([]string, error) {
		if name != filepath.Base(name) { // no file has that name
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

// List returns all plugins, by name.
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

// list returns plugins, by name: of the folders those whose names in returns.
func (f *Finder) list(in func(folder string) (names []string, err error)) ([]Place, error) {
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
		names, err := in(folder.Path)
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
	for _, p := range found {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b Place) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
