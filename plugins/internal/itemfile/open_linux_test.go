package itemfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// secret belongs to root on every Linux, and all may read it, so that only the rule keeps it from being read.
const secret = "/etc/passwd"

// strangers are the user whose links are not trusted, and the user of the process for whom they are not. A test
// that runs as root gives files to another user; one that does not pretends to be another user's process.
func strangers() (strange, us int) {
	if os.Getuid() == 0 {
		return 65534, 0
	}
	return os.Getuid(), os.Getuid() + 1
}

// inbox is a folder in which everything belongs to the strange user.
type inbox struct {
	*testing.T
	dir         string
	strange, us int
}

func newInbox(t *testing.T) inbox {
	strange, us := strangers()
	return inbox{t, t.TempDir(), strange, us}
}

func (b inbox) path(name string) string { return filepath.Join(b.dir, name) }

func (b inbox) give(name string, err error) {
	b.Helper()
	if err = errors.Join(err, os.Lchown(b.path(name), b.strange, -1)); err != nil {
		b.Fatal(err)
	}
}

func (b inbox) file(name, text string) { b.give(name, os.WriteFile(b.path(name), []byte(text), 0o644)) }
func (b inbox) folder(name string)     { b.give(name, os.Mkdir(b.path(name), 0o755)) }
func (b inbox) link(to, name string)   { b.give(name, os.Symlink(to, b.path(name))) }

// read opens a path as a process of a user, and returns its text or the code of the refusal.
func read(path string, uid int) (string, error) {
	f, err := open(path, uid)
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Code, err
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	return string(text), err
}

// TestForeignLinks: a link of another user is followed to what belongs to that user, and to nothing else.
func TestForeignLinks(t *testing.T) {
	b := newInbox(t)
	b.file("own.csv", "own")
	b.folder("sub")
	b.file("sub/own.csv", "own")
	for name, to := range map[string]string{
		"to own": "own.csv", "to own, absolute": b.path("own.csv"), "to own folder": "sub", "up and down": "sub/../own.csv",
		"chain":     "to own",
		"to secret": secret, "to its folder": filepath.Dir(secret), "to root": "/", "chain to secret": "to secret",
		"up to secret": "../../../../../../.." + secret,
		"by proc":      "/proc/self/root" + secret, "to a device": "/dev/zero",
		"to nothing": "/nothing", "below a file": secret + "/x", "to itself": "to itself", "too long": strings.Repeat("x",
			300),
	} {
		b.link(to, name)
	}
	for path, want := range map[string]string{
		"own.csv": "own", "to own": "own", "to own, absolute": "own", "to own folder/own.csv": "own", "up and down": "own",
		"chain":                    "own",
		"to own folder/../own.csv": "own", "./sub//own.csv": "own",
		"to secret": "foreign_link", "to its folder/" + filepath.Base(secret): "foreign_link", "to root" +
			secret: "foreign_link",
		"chain to secret": "foreign_link", "up to secret": "foreign_link", "by proc": "foreign_link",
		"to a device": "foreign_link",
		// The same as if there were something: the owner of the link does not learn what there is.
		"to nothing": "foreign_link", "below a file": "foreign_link", "to itself": "foreign_link", "too long": "foreign_link",
		"to its folder/nothing": "foreign_link",
	} {
		if got, err := read(b.dir+"/"+path, b.us); got != want {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
	_, err := read(b.path("chain to secret"), b.us)
	for _, part := range []string{fmt.Sprintf("%q", b.path("chain to secret")), fmt.Sprintf("uid %d", b.strange),
		"chown -h"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v: without %s", err, part)
		}
	}
	if err != nil && strings.Contains(err.Error(), secret) {
		t.Errorf("%v: tells where it leads to", err)
	}
}

// TestOwnLinks: links of root and of the process's user are followed, also from folder to folder; a link of
// another user on their way is not.
func TestOwnLinks(t *testing.T) {
	b, own := newInbox(t), t.TempDir()
	b.link(secret, "secret")
	must.OK(t, errors.Join(
		os.Symlink(secret, filepath.Join(own, "link")), os.Symlink(own, filepath.Join(own, "folder")),
		os.Symlink(b.path("secret"), filepath.Join(own, "through")), os.Symlink("nothing", filepath.Join(own, "broken")),
	))
	text, err := os.ReadFile(secret)
	must.OK(t, err)
	for _, path := range []string{"link", "folder/link", "folder/folder/link"} {
		if got, err := read(filepath.Join(own, path), os.Getuid()); got != string(text) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got, err := read(b.path("secret"), b.strange); got != string(text) {
		t.Errorf("the strange user's own process: %v", err)
	}
	if os.Getuid() == 0 { // only root makes links that root owns
		if got, err := read(filepath.Join(own, "link"), b.strange); got != string(text) {
			t.Errorf("a link of root: %v", err)
		}
		if got, err := read(filepath.Join(own, "through"), b.us); got != "foreign_link" {
			t.Errorf("a link of root to one of somebody else: %q, %v", got, err)
		}
	}
	if _, err := read(filepath.Join(own, "broken"), os.Getuid()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a broken link of our own: %v", err)
	}
}

// TestManyLinks: as many links as the kernel follows are followed, and no more.
func TestManyLinks(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "0"), []byte("own"), 0o600))
	for i := range maxLinks + 1 {
		must.OK(t, os.Symlink(fmt.Sprint(i), filepath.Join(dir, fmt.Sprint(i+1))))
	}
	if got, err := read(filepath.Join(dir, fmt.Sprint(maxLinks)), os.Getuid()); got != "own" {
		t.Errorf("%d links: %q, %v", maxLinks, got, err)
	}
	if _, err := read(filepath.Join(dir, fmt.Sprint(maxLinks+1)), os.Getuid()); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("%d links: %v", maxLinks+1, err)
	}
}

// TestSwaps: a file and a folder on the way that are swapped for links all the time never give the secret.
func TestSwaps(t *testing.T) {
	b := newInbox(t)
	b.folder("sub")
	b.file("sub/passwd", "own")
	b.file("passwd", "own")
	b.link(secret, "link")
	b.link(filepath.Dir(secret), "folder")
	swapped := make(chan error)
	go func() {
		defer close(swapped)
		for range 500 {
			for _, pair := range [][2]string{{"passwd", "link"}, {"sub", "folder"}} {
				swapped <- syscall.Rename(b.path(pair[0]), b.path("spare"))
				swapped <- syscall.Rename(b.path(pair[1]), b.path(pair[0]))
				swapped <- syscall.Rename(b.path(pair[0]), b.path(pair[1]))
				swapped <- syscall.Rename(b.path("spare"), b.path(pair[0]))
			}
		}
	}()
	for err := range swapped { // the next swap runs while these paths are walked
		must.OK(t, err)
		for _, path := range []string{"passwd", "sub/passwd"} {
			got, err := read(b.path(path), b.us)
			if got != "own" && got != "foreign_link" && !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("%s: %q, %v", path, got, err)
			}
		}
	}
}
