package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user id of the program in the image: by custom the number for images without a shell.
const user = 65532

// A build is the input of an image.
type build struct {
	programs map[string]string // architecture → file
	version  string
	commit   string
	made     time.Time // of every file, so that the same input gives the same bytes
}

// write makes an image layout of the OCI image specification in the folder dir. It removes what is in the folder.
func (b build) write(dir string) (v1.Hash, error) {
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range []string{"amd64", "arm64"} {
		program, wanted := b.programs[arch]
		if !wanted {
			continue
		}
		image, err := b.image(arch, program)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("image for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	if err := os.RemoveAll(dir); err != nil {
		return v1.Hash{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return v1.Hash{}, err
	}
	top, err := layout.Write(dir, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	name := map[string]string{"org.opencontainers.image.ref.name": b.version}
	if err := top.AppendIndex(index, layout.WithAnnotations(name)); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

// image makes the image for one architecture.
func (b build) image(arch, program string) (v1.Image, error) {
	files, err := b.files(program)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON), mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: v1.Time{Time: b.made}, CreatedBy: "make image"}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: b.made}
	config.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", user, user),
		Entrypoint: []string{"/usr/bin/ledgerd"},
		Cmd:        []string{"serve"},
		WorkingDir: "/var/lib/ledgerd",
		Env: []string{"PATH=/usr/bin", "HOME=/var/lib/ledgerd", "LEDGERD_DATA_DIR=/var/lib/ledgerd",
			"SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
		Volumes:    map[string]struct{}{"/var/lib/ledgerd": {}},
		StopSignal: "SIGTERM",
		Labels: map[string]string{
			"org.opencontainers.image.title":    "ledgerd",
			"org.opencontainers.image.source":   "https://github.com/ledgerd/ledgerd",
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version":  b.version,
			"org.opencontainers.image.revision": b.commit,
		},
	}
	return mutate.ConfigFile(image, config)
}

// files returns the one layer of the image, a tar file: the program, certificates, the user, and the folders that the
// program writes to. The zone data is linked into the program.
func (b build) files(program string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Clean(program))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		name  string
		mode  int64
		owner int
		text  []byte // nil for a folder
	}{
		{"etc/", 0o755, 0, nil},
		{"etc/group", 0o644, 0, fmt.Appendf(nil, "root:x:0:\nledgerd:x:%d:\n", user)},
		{"etc/ledgerd/", 0o755, 0, nil},
		{"etc/passwd", 0o644, 0, fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\n"+
			"ledgerd:x:%d:%d:ledgerd:/var/lib/ledgerd:/sbin/nologin\n", user, user)},
		{"etc/ssl/", 0o755, 0, nil},
		{"etc/ssl/certs/", 0o755, 0, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, 0, authorities()},
		{"tmp/", 0o1777, 0, nil}, // sockets of plugins
		{"usr/", 0o755, 0, nil},
		{"usr/bin/", 0o755, 0, nil},
		{"usr/bin/ledgerd", 0o755, 0, text},
		{"var/", 0o755, 0, nil},
		{"var/lib/", 0o755, 0, nil},
		{"var/lib/ledgerd/", 0o700, user, nil},
	} {
		header := &tar.Header{Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner, Size: int64(len(f.text)),
			ModTime: b.made, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if f.text == nil {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// authorities returns the certificate authorities of Mozilla's list, as PEM. It leaves out those that are trusted under
// a condition, since a file of certificates cannot express a condition.
func authorities() (text []byte) {
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})...)
		}
	}
	return text
}
