package filecsv

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
}

// TestNotAFile: a path that is not a regular file is refused at once, and so is a link of another user. Package
// itemfile has the other types of files and links.
func TestNotAFile(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.csv"), "a\n")
	link, linked := filepath.Join(dir, "link.csv"), "not_found: there is no such file (any more)"
	must.OK(t, os.Symlink("/nothing", link))
	if runtime.GOOS == "linux" && os.Getuid() == 0 { // only root can make a link of another user
		must.OK(t, os.Lchown(link, 65534, -1))
		linked = "foreign_link: the link "
	}
	for path, want := range map[string]string{
		link:                             linked,
		dir:                              "not_a_file: it is a directory, not a regular file",
		filepath.Join(dir, "none.csv"):   "not_found: there is no such file (any more)",
		filepath.Join(dir, "a.csv", "b"): "not_found: there is no such file (any more)",
	} {
		g := scanned(t, path, plain(), plainOptions())
		if got := g.Code + ": " + g.Error; !strings.HasPrefix(got, want) || g.Again {
			t.Errorf("%s: got %s, again %v, want %s", path, got, g.Again, want)
		}
	}
}

func TestOpenError(t *testing.T) {
	for _, c := range []struct {
		err   error
		code  string
		again bool
	}{
		{syscall.ENOENT, "not_found", false},
		{syscall.EMFILE, "cannot_read", true},
		{syscall.EIO, "cannot_read", true},
	} {
		f := openError(&fs.PathError{Op: "open", Path: "/x", Err: c.err}).(*failure)
		if f.code != c.code || f.again != c.again {
			t.Errorf("%v: got %s, again %v", c.err, f.code, f.again)
		}
	}
}

// TestChangedWhileReading changes the file after its first block was read.
func TestChangedWhileReading(t *testing.T) {
	text := string(people(5000, false))
	old := time.Now().Add(-time.Hour)
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	for name, change := range map[string]func(path string){
		"appended":  func(path string) { write(t, path, text+"1,2,3\n") },
		"truncated": func(path string) { must(os.Truncate(path, 10)) },
		"rewritten": func(path string) { must(os.Chtimes(path, old.Add(time.Second), old.Add(time.Second))) },
		"removed":   func(path string) { must(os.Remove(path)) },
		"replaced": func(path string) {
			write(t, path+".new", text)
			must(os.Chtimes(path+".new", old, old))
			must(os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.csv")
			write(t, path, text)
			must(os.Chtimes(path, old, old))
			o := plainOptions()
			done := false
			o.progress = func(int64) {
				if !done {
					change(path)
				}
				done = true
			}
			if g := scanned(t, path, plain(), o); g.Code != "changed_while_reading" || !g.Again {
				t.Errorf("got %s %s, again %v", g.Code, g.Error, g.Again)
			}
		})
	}
}

// TestBadBecauseChanging: a fault of a file that changes may come from the change, so the file is tried again.
func TestBadBecauseChanging(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	write(t, path, "id,note\n1,\"half a")
	o := plainOptions()
	o.progress = func(int64) { write(t, path, "id,note\n1,\"half a row\"\n") }
	if g := scanned(t, path, plain(), o); g.Code != "changed_while_reading" || !g.Again {
		t.Errorf("got %s %s", g.Code, g.Error)
	}
}

func TestReadError(t *testing.T) {
	src := io.MultiReader(strings.NewReader("a,b\n1,2\n"), iotest.ErrReader(errors.New("bad sector")))
	_, err := scan(t.Context(), seekless{src}, plain(), plainOptions())
	f, ok := err.(*failure)
	if !ok || f.code != "cannot_read" || !f.again || f.text != "reading stopped at byte 8: bad sector" {
		t.Errorf("got %#v", err)
	}
}

// seekless is a stream that cannot seek.
type seekless struct{ io.Reader }

func (seekless) Seek(int64, int) (int64, error) { return 0, errors.ErrUnsupported }

// TestTooBig: a small gzip file with a long text is read only up to the limit.
func TestTooBig(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	must.Do(t)(io.Copy(z, io.LimitReader(&endless{start: "id,note\n", line: "1,aaaaaaaaaaaaaaaaaaaaaaaa\n"},
		64<<20)))
	must.OK(t, z.Close())
	o := plainOptions()
	o.maxBytes = 1 << 20
	out, err := scan(t.Context(), bytes.NewReader(packed.Bytes()), plain(), o)
	if codeOf(err) != "too_big" || !strings.Contains(err.Error(), "more than 1.0 MiB of text") {
		t.Errorf("got %v", err)
	}
	if out.Rows*27 > 1<<20 {
		t.Errorf("%d rows were read", out.Rows)
	}
	text := "a\n" + strings.Repeat("x\n", 100)
	for _, limit := range []int{len(text), len(text) - 1} {
		o.maxBytes = int64(limit)
		_, err := scan(t.Context(), strings.NewReader(text), plain(), o)
		if (codeOf(err) == "too_big") != (limit < len(text)) {
			t.Errorf("limit %d of %d: %v", limit, len(text), err)
		}
	}
}

// TestPaddedGzip: zero bytes after a member are padding, and everything after them is read. Other bytes there are an
// error.
func TestPaddedGzip(t *testing.T) {
	packed := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.WriteString(z, text)
		_ = z.Close() // writing to memory does not fail
		return b.String()
	}
	one, two, none, zeros := packed("id,name\n1,ann\n"), packed("2,bob\n"), packed(""), strings.Repeat("\x00", 1<<18)
	for name, tt := range map[string]struct {
		content string
		rows    int64
		problem string
	}{
		"padding":             {one + zeros, 1, ""},
		"one zero":            {one + "\x00", 1, ""},
		"members":             {one + two + zeros, 2, ""},
		"between members":     {one + zeros + two + two + "\x00", 3, ""},
		"empty members":       {strings.Repeat(none, 1000) + one + strings.Repeat(none+"\x00", 1000) + two, 2, ""},
		"garbage":             {one + "garbage, no member", 0, "is damaged: gzip: invalid header"},
		"garbage in padding":  {one + zeros + "x" + zeros, 0, "is damaged: gzip: invalid header"},
		"half a member":       {one + zeros + two[:12], 0, "ends in the middle"},
		"half a checksum":     {one[:len(one)-5], 0, "ends in the middle"},
		"a broken byte":       {one[:10] + "\x07" + one[11:], 0, "is damaged: invalid data"},
		"zeros as a checksum": {one[:len(one)-8] + zeros, 0, "is damaged: gzip: invalid checksum"},
	} {
		for _, wrap := range []func(io.Reader) io.Reader{
			func(r io.Reader) io.Reader { return r }, iotest.HalfReader, iotest.DataErrReader,
		} {
			src := strings.NewReader(tt.content)
			out, err := scan(t.Context(), struct {
				io.Reader
				io.Seeker
			}{wrap(src), src}, plain(), plainOptions())
			switch {
			case tt.problem == "" && (err != nil || out.Rows != tt.rows || out.Bytes != int64(len(tt.content))):
				t.Errorf("%s: %d rows of %d bytes, %v; want %d of %d", name, out.Rows, out.Bytes, err, tt.rows, len(tt.content))
			case tt.problem != "" && (codeOf(err) != "bad_gzip" || !strings.Contains(err.Error(), tt.problem)):
				t.Errorf("%s: got %v, want %q", name, err, tt.problem)
			}
		}
	}
}

// TestCancel: a cancelled scan ends with the cause, at any place.
func TestCancel(t *testing.T) {
	defer goleak.VerifyNone(t)
	text := people(20_000, false)
	why := errors.New("no longer wanted")
	for _, block := range []int{1, 5} {
		ctx, cancel := context.WithCancelCause(t.Context())
		o := plainOptions()
		blocks := 0
		o.progress = func(int64) {
			if blocks++; blocks == block {
				cancel(why)
			}
		}
		out, err := scan(ctx, bytes.NewReader(text), plain(), o)
		if err != why || out.Bytes >= int64(len(text)) || out.SHA256 != "" {
			t.Errorf("at block %d: %v after %d of %d bytes", block, err, out.Bytes, len(text))
		}
	}
}

// TestSameOutput: the output does not depend on the sizes of the reads.
func TestSameOutput(t *testing.T) {
	text := people(3000, true)
	in := plain()
	in.Unique = []string{"balance", "id"}
	in.Types = map[string]string{"age": `regexp:[^7]+`}
	in.MaxBadRows = -1
	want, err := scan(t.Context(), bytes.NewReader(text), in, plainOptions())
	want.DurationMS = 0
	if err != nil || want.BadRows < 300 || want.BadRows > 1000 {
		t.Fatalf("%d bad rows, %v", want.BadRows, err)
	}
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"again":  func(r io.Reader) io.Reader { return r },
		"halves": iotest.HalfReader,
		"bytes":  iotest.OneByteReader,
	} {
		got, err := scan(t.Context(), wrap(bytes.NewReader(text)), in, plainOptions())
		got.DurationMS = 0
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, d)
		}
	}
}

// TestProgress: progress grows and ends with the size of the packed file.
func TestProgress(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(people(50_000, false))
	z.Close()
	var reports []int64
	o := plainOptions()
	o.progress = func(n int64) { reports = append(reports, n) }
	must.Do(t)(scan(t.Context(), bytes.NewReader(packed.Bytes()), plain(), o))
	for i := 1; i < len(reports); i++ {
		if reports[i] < reports[i-1] {
			t.Fatalf("progress goes back: %v", reports)
		}
	}
	if len(reports) < 5 || reports[len(reports)-1] != int64(packed.Len()) {
		t.Errorf("%d reports, the last %d of %d bytes", len(reports), reports[len(reports)-1], packed.Len())
	}
}
