package main

import (
	"archive/tar"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// writeImage writes an image of small programs.
func writeImage(t *testing.T) (dir string, digest v1.Hash) {
	t.Helper()
	programs := t.TempDir()
	b := build{programs: map[string]string{}, version: "v1.2.3", commit: "abc", made: time.Unix(1_700_000_000, 0).UTC()}
	for _, arch := range []string{"amd64", "arm64"} {
		b.programs[arch] = filepath.Join(programs, arch)
		if err := os.WriteFile(b.programs[arch], []byte("program for "+arch), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir = filepath.Join(programs, "layout")
	digest, err := b.write(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, digest
}

func TestImageIsTheSameTwice(t *testing.T) {
	one, digest := writeImage(t)
	two, again := writeImage(t)
	if digest != again {
		t.Errorf("digests %s and %s", digest, again)
	}
	var archives [2]string
	for i, dir := range []string{one, two} {
		path := filepath.Join(t.TempDir(), "image.tar")
		if err := archive(path, dir, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		archives[i] = string(text)
	}
	if archives[0] != archives[1] {
		t.Error("the archives differ")
	}
}

// TestImage looks at what an image for a platform has, and as whom it runs.
func TestImage(t *testing.T) {
	dir, digest := writeImage(t)
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	index, err := top.ImageIndex(digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("%v, %v", manifest, err)
	}
	for _, m := range manifest.Manifests {
		arch := m.Platform.Architecture
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != arch || config.Config.User != "65532:65532" || config.Config.Entrypoint[0] != "/usr/bin/ledgerd" {
			t.Errorf("%s: %+v", arch, config)
		}
		layers, err := image.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatalf("%d layers, %v", len(layers), err)
		}
		if text := read(t, layers[0]); text["usr/bin/ledgerd"] != "program for "+arch {
			t.Errorf("%s: the program is %q", arch, text["usr/bin/ledgerd"])
		} else if block, _ := pem.Decode([]byte(text["etc/ssl/certs/ca-certificates.crt"])); block == nil {
			t.Error("no certificate authorities")
		}
	}
}

// read unpacks a layer, and asserts who may do what with the folders that ledgerd writes to.
func read(t *testing.T, layer v1.Layer) map[string]string {
	t.Helper()
	in, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	files, headers := map[string]string{}, map[string]*tar.Header{}
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name], headers[h.Name] = string(text), h
	}
	if h := headers["tmp/"]; h == nil || h.Mode != 0o1777 {
		t.Errorf("/tmp: %+v", h)
	}
	if h := headers["var/lib/ledgerd/"]; h == nil || h.Mode != 0o700 || h.Uid != user {
		t.Errorf("/var/lib/ledgerd: %+v", h)
	}
	return files
}
