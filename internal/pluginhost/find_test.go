package pluginhost

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
)

func touch(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		must.OK(t, os.WriteFile(filepath.Join(dir, n), []byte("#!/bin/sh\n"), 0o755))
	}
}

// The configured plugin wins, then the first folder; plugins that it shadows are reported.
func TestFind(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	touch(t, first, "ledgerd-plugin-thumbs", "ledgerd-plugin-", "README")
	touch(t, second, "ledgerd-plugin-thumbs", "ledgerd-plugin-feed", "ledgerd-plugin-filecsv", "ledgerd")
	must.OK(t, os.Mkdir(filepath.Join(second, "ledgerd-plugin-folder"), 0o755))
	f := Finder{
		Configured: []Place{{Name: "feed", Path: "/opt/feed", Args: []string{"-v"}, Origin: "config"}},
		Folders:    []Folder{{first, "--plugin-dir"}, {filepath.Join(first, "missing"), "data"}, {second, "beside ledgerd"}},
		Bundled:    map[string]Linked{"filecsv": nil, "urlcheck": nil}, Self: "/opt/ledgerd",
	}
	bundled := func(name string) Place {
		return Place{Name: name, Path: "/opt/ledgerd", Args: []string{name}, Origin: "bundled"}
	}
	in := func(dir, name, origin string, shadows ...Place) Place {
		return Place{Name: name, Path: filepath.Join(dir, "ledgerd-plugin-"+name), Origin: origin, Shadows: shadows}
	}
	want := []Place{
		{Name: "feed", Path: "/opt/feed", Args: []string{"-v"}, Origin: "config",
			Shadows: []Place{in(second, "feed", "beside ledgerd")}},
		in(second, "filecsv", "beside ledgerd", bundled("filecsv")),
		in(first, "thumbs", "--plugin-dir", in(second, "thumbs", "beside ledgerd")),
		bundled("urlcheck"),
	}
	got, err := f.List()
	must.OK(t, err)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Place{})); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	one, err := f.Find("thumbs")
	must.OK(t, err)
	if diff := cmp.Diff(want[2], one, cmpopts.IgnoreUnexported(Place{})); diff != "" {
		t.Errorf("thumbs (-want +got):\n%s", diff)
	}
	for _, name := range []string{"nosuch", "", ".", "../thumbs", strings.Repeat("x", 300)} {
		if _, err := f.Find(name); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFolderIsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	f := Finder{Folders: []Folder{{file, "--plugin-dir"}}}
	for _, look := range []func() error{
		func() error { _, err := f.List(); return err },
		func() error { _, err := f.Find("feed"); return err },
	} {
		if err := look(); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%v", err)
		}
	}
}

// A program in a folder that others may write to, or with another checksum, is not started.
func TestDistrust(t *testing.T) {
	copied := func(mode os.FileMode) Place {
		dir := filepath.Join(t.TempDir(), "plugins")
		must.OK(t, os.Mkdir(dir, 0o755))
		p := place(t)
		program, err := os.ReadFile(p.Path)
		must.OK(t, err)
		p.Path = filepath.Join(dir, "ledgerd-plugin-actor")
		must.OK(t, os.WriteFile(p.Path, program, 0o755))
		must.OK(t, os.Chmod(dir, mode))
		return p
	}
	tests := []struct {
		name string
		spec Spec
		want error
	}{
		{"folder writable by others", Spec{Place: copied(0o777)}, pluginproc.ErrWritable},
		{"another checksum", Spec{Place: copied(0o755), SHA256: strings.Repeat("0", 64)}, pluginproc.ErrChecksum},
		{"nothing amiss", Spec{Place: copied(0o755)}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, err := Start(t.Context(), Config{Spec: tt.spec})
			if err == nil {
				h.Close(time.Second)
			}
			if !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}
