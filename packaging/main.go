// Command packaging does the steps of a release for which there is no other tool. It writes the OCI image without a
// daemon, prints the changelog's section of one version, and checks the licenses of all modules. The Makefile runs it.
// docs/releasing.md has all steps of a release.
package main

import (
	"archive/tar"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("want image, changes or licenses")
	}
	switch args[0] {
	case "image":
		return image(args[1:])
	case "changes":
		return changes(args[1:])
	case "licenses":
		return licenses(os.Stdin, os.Stdout)
	}
	return fmt.Errorf("no command %q; there are image, changes and licenses", args[0])
}

// image writes a file with the image layout of OCI.
func image(args []string) error {
	flags := flag.NewFlagSet("image", flag.ExitOnError)
	b := build{programs: map[string]string{}}
	for _, arch := range []string{"amd64", "arm64"} {
		flags.Func(arch, "`program` for linux/"+arch, func(path string) error { b.programs[arch] = path; return nil })
	}
	flags.StringVar(&b.version, "version", "dev", "`version`, the name of the image in the layout")
	flags.StringVar(&b.commit, "commit", "", "`commit` that the programs were built from")
	out := flags.String("out", "", "`file` to write, an archive of the layout")
	if err := flags.Parse(args); err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH, the time of all files in seconds since 1970: %w", err)
	}
	if *out == "" || len(b.programs) == 0 || flags.NArg() > 0 {
		return errors.New("want -out and a program for each platform, and nothing else")
	}
	b.made = time.Unix(seconds, 0).UTC()
	dir, err := os.MkdirTemp(filepath.Dir(*out), "layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	digest, err := b.write(dir)
	if err != nil {
		return err
	}
	if err := archive(*out, dir, b.made); err != nil {
		return err
	}
	fmt.Println(digest, *out)
	return nil
}

// archive writes a tar file with the files of a folder, in the order of their names.
func archive(path, dir string, made time.Time) (err error) {
	f, err := os.Create(filepath.Clean(path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Clean(name))
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(inside), Mode: 0o644, Size: int64(len(text)),
			ModTime: made, Format: tar.FormatPAX}); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
	return errors.Join(err, w.Close())
}
