package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// Options are the inputs of Load.
type Options struct {
	// Path is that of the file; "" means no file. See Find.
	Path string
	// Environ is the environment as "NAME=value": os.Environ().
	Environ []string
	// Flags are values of the command line, by key: {"db": "sqlite:x.db"}. They override all others.
	Flags map[string]string
}

// Find returns the path of the file to read: the named one, else LEDGERD_CONFIG, else the first existing one of
// $XDG_CONFIG_HOME/ledgerd/ledgerd.toml (~/.config without the variable) and /etc/ledgerd/ledgerd.toml, unless this
// user may not read it; "" if there is none. Only one file is read.
func Find(named string, lookup func(string) (string, bool)) string {
	if named != "" {
		return named
	}
	if path, _ := lookup("LEDGERD_CONFIG"); path != "" {
		return path
	}
	for _, path := range []string{UserFile(lookup), SystemFile} {
		if !filepath.IsAbs(path) { // none, or that of the machine on Windows, where any user may make it
			continue
		}
		f, err := os.Open(path)
		if err == nil {
			_ = f.Close()
		}
		if errors.Is(err, fs.ErrNotExist) || path == SystemFile && errors.Is(err, fs.ErrPermission) { // it is the service's
			continue
		}
		return path
	}
	return ""
}

// SystemFile is the config file of the machine.
const SystemFile = "/etc/ledgerd/ledgerd.toml"

// onWindows: the home directory has another variable there, and the modes of files mean nothing.
const onWindows = runtime.GOOS == "windows"

// UserFile is the config file of the user; "" if there is no home directory.
func UserFile(lookup func(string) (string, bool)) string {
	dir, _ := lookup("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		home, _ := lookup("HOME")
		if onWindows {
			home, _ = lookup("USERPROFILE")
		}
		if !filepath.IsAbs(home) {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "ledgerd", "ledgerd.toml")
}

// Load reads the file and overrides it with the environment and the flags. The error is an *Error with all problems.
// The Config then holds the correct values only, and must not be used for work.
func Load(o Options) (*Config, error) {
	c := withDefaults(reflect.TypeFor[Config]()).Interface().(*Config)
	c.File, c.origins, c.failed, c.doc = o.Path, map[string]Origin{}, map[string]bool{}, &document{path: o.Path}
	d := &decoder{config: c}
	if o.Path != "" {
		text, err := read(o.Path)
		if err != nil {
			return c, &Error{[]Problem{{File: o.Path, Message: "cannot be read: " + err.Error()}}}
		}
		c.doc, d.problems = parse(o.Path, text)
		d.table("", c.doc.values, reflect.ValueOf(c).Elem())
	}
	d.oneOf("", c.DB != "", "db", c.DBFile != "", "db_file")
	d.environment(o.Environ)
	d.flags(o.Flags)
	d.check()
	c.warnOfSecrets()
	for _, p := range d.problems {
		c.failed[p.Key] = true
	}
	return c, asError(d.problems)
}

// read returns the content of a file. Its error does not name the file.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, cause(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, cause(err)
	}
	if len(text) > maxSize {
		return nil, fmt.Errorf("has more than %d bytes; is it the right file?", maxSize)
	}
	return text, nil
}

// cause removes the call and the path, since the message has them already.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// resolve makes a path absolute. ~/ is the home directory. A relative path is relative to folder; "" is the working
// directory.
func resolve(path, folder string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// oneOf refuses two keys of a table that exclude each other.
func (d *decoder) oneOf(table string, a bool, nameA string, b bool, nameB string) {
	if a && b {
		d.fail(joinPath(table, nameB), faultf("%s is given as well; one of them is enough", nameA))
	}
}

// Origin returns the origin of a value, by the path of its key such as "kinds.urlcheck.timeout" or "source[0].path".
// The zero Origin is the built-in default.
func (c *Config) Origin(path string) Origin { return c.origins[path] }

// String is the origin as people read it.
func (o Origin) String() string {
	switch {
	case o.Flag != "":
		return o.Flag
	case o.Env != "":
		return o.Env
	case o.Line > 0:
		return fmt.Sprintf("%s:%d", o.File, o.Line)
	case o.File != "":
		return o.File
	}
	return "default"
}

// warnOfSecrets warns if all users can read a file that holds a secret: this one, or one that it names.
func (c *Config) warnOfSecrets() {
	in := c.secretPaths()
	for _, path := range slices.Sorted(maps.Keys(in)) {
		file, what, hint := in[path], in[path], ""
		if file == "" {
			file, what, hint = c.File, "this file", orInFile(path)
		}
		info, err := os.Stat(file)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o004 == 0 || onWindows || isMounted(file) {
			continue
		}
		c.Warnings = append(c.Warnings, c.problem(path, &ledger.Error{
			Message: "everybody on this machine can read " + what + ", and it holds a secret",
			Hint:    "chmod o-r " + file + hint}))
	}
}

// isMounted reports whether a container runtime has put a secret there. Docker and Podman give such files the mode
// 0444, in a container that has no other users, and there is no chmod.
func isMounted(file string) bool {
	return strings.HasPrefix(file, "/run/secrets/") || strings.HasPrefix(file, "/var/run/secrets/")
}

// orInFile advises the key that names a file with the secret, where there is one.
func orInFile(path string) string {
	_, with, ok := strings.Cut(path, ".with.")
	if ok && strings.Contains(with, ".") || strings.HasSuffix(path, "].url") || strings.HasPrefix(path, "plugins.") ||
		strings.Contains(path, ".set.") {
		return ""
	}
	return ", or put the secret into a file of its own: " + lastKey(path) + "_file"
}

// secretPaths returns the keys that hold or name a secret, as far as that is known without the plugins: with the file
// that has it, "" for the file of the configuration.
func (c *Config) secretPaths() map[string]string {
	in := map[string]string{}
	holds := func(path, url, file string) {
		if o := c.origins[path]; (o.File != "" || file != "") && redact.Text(url) != url {
			in[path] = file
		}
	}
	holds("db", c.DB, "")
	holds("db_file", c.DB, c.DBFile)
	for i, s := range c.Sources {
		path := fmt.Sprintf("source[%d]", i)
		holds(path+".url", s.URL, "")
		holds(path+".query_db", s.QueryDB, "")
		holds(path+".query_db_file", s.QueryDB, s.QueryDBFile)
		c.secretsIn(path+".set", s.Set, in)
	}
	for name, p := range c.Plugins {
		holds(joinPath("plugins", name)+".source", p.Source, "")
	}
	for name, k := range c.Kinds {
		c.secretsIn(joinPath("kinds", name)+".set", k.Set, in)
		c.secretsIn(joinPath("kinds", name)+".with", k.With, in)
	}
	return in
}

// secretsIn adds the keys of a plugin's table that hold a secret, to judge by their names.
func (c *Config) secretsIn(path string, table map[string]any, in map[string]string) {
	for field, value := range table {
		at := joinPath(path, field)
		switch v := value.(type) {
		case map[string]any:
			c.secretsIn(at, v, in)
		case string:
			file, isFile := secretFile(v)
			if name, named := strings.CutSuffix(field, "_file"); named {
				field, file, isFile = name, v, true
			}
			if redact.SecretName(field) && isFile {
				in[at] = resolve(file, filepath.Dir(c.File))
			} else if redact.SecretName(field) {
				in[at] = ""
			}
		}
	}
}
