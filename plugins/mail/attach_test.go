//go:build unix

package mail

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	netmail "net/mail"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
)

// attachments reads the attachments of a mail: contents by name.
func attachments(t *testing.T, content []byte) map[string]string {
	t.Helper()
	m, err := netmail.ReadMessage(bytes.NewReader(content))
	must.OK(t, err)
	_, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	must.OK(t, err)
	found := map[string]string{}
	for parts := multipart.NewReader(m.Body, params["boundary"]); ; {
		p, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return found
		}
		must.OK(t, err)
		disposition, params, _ := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
		if disposition != "attachment" {
			continue
		}
		text, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, p))
		must.OK(t, err)
		name, err := new(mime.WordDecoder).DecodeHeader(params["filename"])
		must.OK(t, err)
		found[name] = string(text)
	}
}

func TestAttach(t *testing.T) {
	dir := folder(t, map[string]string{"a.pdf": "%PDF", "Grüße.txt": "hi", "empty": "", "large": strings.Repeat("x", 101),
		"a\"b;c.txt": "q", "line\r\nBcc: eve@example.com.txt": "x"})
	must.OK(t, os.MkdirAll(filepath.Join(dir, "sub", "folder"), 0o700))
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "sub", "b.txt"), []byte("b"), 0o600),
		os.WriteFile(filepath.Join(dir, "..", "secret"), []byte("secret"), 0o600),
		os.Symlink("../secret", filepath.Join(dir, "out")),
		os.Symlink("a.pdf", filepath.Join(dir, "in.pdf")),
		os.Symlink("loop", filepath.Join(dir, "loop")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
	} {
		must.OK(t, err)
	}
	cfg := defaults("127.0.0.1:9")
	cfg.Attachments, cfg.MaxAttach = dir, 100
	for _, tt := range []struct {
		name  string
		paths []string
		want  map[string]string
		fate  failure.Fate
		err   string
	}{
		{"two", []string{"a.pdf", "sub/b.txt"}, map[string]string{"a.pdf": "%PDF", "b.txt": "b"}, 0, ""},
		{"not ASCII", []string{"Grüße.txt"}, map[string]string{"Grüße.txt": "hi"}, 0, ""},
		{"a name with quotes", []string{`a"b;c.txt`}, map[string]string{"a_b;c.txt": "q"}, 0, ""},
		{"an empty one", []string{"empty"}, map[string]string{"empty": ""}, 0, ""},
		{"a link inside", []string{"in.pdf"}, map[string]string{"in.pdf": "%PDF"}, 0, ""},
		{"a header in a name", []string{"line\r\nBcc: eve@example.com.txt"}, nil, failure.Never, "not a path below"},
		{"outside", []string{"../secret"}, nil, failure.Never, "not a path below"},
		{"absolute", []string{filepath.Join(dir, "a.pdf")}, nil, failure.Never, "not a path below"},
		{"a link that leads out", []string{"out"}, nil, failure.Never, "escapes"},
		{"a folder", []string{"sub/folder"}, nil, failure.Never, "not a regular file"},
		{"a pipe", []string{"pipe"}, nil, failure.Never, "not a regular file"},
		{"too large", []string{"large"}, nil, failure.Never, "more than max_attach, 100 bytes"},
		{"too large together", []string{"a.pdf", "in.pdf", "sub/b.txt", "large"}, nil, failure.Never, "max_attach"},
		{"not there", []string{"later.pdf"}, nil, failure.Again, "no such file"},
		{"below a file", []string{"a.pdf/b"}, nil, failure.Never, "not a directory"},
		{"a link to itself", []string{"loop"}, nil, failure.Never, "too many levels"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := hello("ann@example.com")
			in.Attach = tt.paths
			m, err := compose(t.Context(), &cfg, in, "mail//x/1")
			if tt.err != "" {
				if f, code := end(err); err == nil || f != tt.fate || code != "attachment" ||
					!strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v %s %v, want %v with %q", f, code, err, tt.fate, tt.err)
				}
				return
			}
			must.OK(t, err)
			if d := cmp.Diff(tt.want, attachments(t, m.content)); d != "" {
				t.Errorf("attached (-want +got):\n%s", d)
			}
			for line := range bytes.SplitSeq(m.content, []byte("\r\n")) {
				if len(line) > 998 || !isASCII(line) || bytes.HasPrefix(line, []byte("Bcc")) {
					t.Errorf("line %q", line)
				}
			}
		})
	}
	cfg.Attachments = ""
	in := hello("ann@example.com")
	without, err := compose(t.Context(), &cfg, in, "mail//x/1")
	must.OK(t, err)
	in.Attach = []string{"a.pdf"}
	if f, code := end(errorOf(compose(t.Context(), &cfg, in, "mail//x/1"))); f != failure.Again || code != "attachment" {
		t.Errorf("without a folder: %v %s", f, code)
	}
	cfg.Attachments = dir
	with, err := compose(t.Context(), &cfg, in, "mail//x/1")
	if err != nil || with.id == without.id {
		t.Errorf("the Message-ID does not depend on the attachments: %v", err)
	}
}

// TestMayPass: what is wrong with a path stays wrong. What the system could not do now, it may do later.
func TestMayPass(t *testing.T) {
	for errno, want := range map[error]bool{
		syscall.ENOENT: true, syscall.EACCES: true, syscall.EMFILE: true, syscall.ENFILE: true, syscall.ESTALE: true,
		syscall.EIO: true, syscall.ENOMEM: true,
		syscall.ENOTDIR: false, syscall.ELOOP: false, syscall.ENAMETOOLONG: false, syscall.ENXIO: false,
		syscall.EINVAL: false, syscall.EILSEQ: false,
		errors.New("path escapes from parent"): false,
	} {
		if mayPass(&os.PathError{Op: "openat", Path: "a", Err: errno}) != want {
			t.Errorf("%v: want %v", errno, want)
		}
	}
}

func errorOf(_ *message, err error) error { return err }

// TestMessageIDStays: a mail without the newer fields keeps the Message-ID of older versions.
func TestMessageIDStays(t *testing.T) {
	cfg := defaults("127.0.0.1:9")
	must.OK(t, cfg.Validate())
	got := messageID("mail/1/1", In{To: "ann@example.com", Subject: "Hi", Text: "x", Data: Data{"n": "1"}}, cfg.from)
	if want := "df0f0eb722d36f3f49e9fe36f11dc330@example.com"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestMaildir: mails are written into a folder, each once, even if it is sent several times.
func TestMaildir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "try")
	cfg := defaults("")
	cfg.Maildir = dir
	c := open(t, cfg)
	must.OK(t, c.Check(t.Context()))
	for i := range 4 {
		out, err := post(t.Context(), c, hello(fmt.Sprintf("ann%d@example.com", i%2)))
		if err != nil || !strings.HasPrefix(out.Reply, filepath.Join(dir, "new")+"/") {
			t.Fatalf("%+v, %v", out, err)
		}
		text, err := os.ReadFile(out.Reply)
		if err != nil || !bytes.Contains(text, []byte("Message-ID: <"+out.MessageID+">\r\n")) ||
			!bytes.Contains(text, []byte("Good morning")) {
			t.Errorf("%v\n%s", err, text)
		}
	}
	for sub, want := range map[string]int{"new": 2, "tmp": 0, "cur": 0} {
		if files, err := os.ReadDir(filepath.Join(dir, sub)); err != nil || len(files) != want {
			t.Errorf("%s has %d files, want %d: %v", sub, len(files), want, err)
		}
	}
	must.OK(t, os.RemoveAll(dir))
	if f, code := end(errOf(post(t.Context(), c, hello("ann@example.com")))); f != failure.Again || code != "maildir" {
		t.Errorf("without its folder: %v %s", f, code)
	}
}
