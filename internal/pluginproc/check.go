package pluginproc

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// check examines the program before it is started. It returns the program's path without links: start this one, because
// a link may change after the check. The error is a *StartError.
func (s *Spec) check() (program string, err error) {
	if !strings.ContainsRune(s.Path, filepath.Separator) { // the current folder may belong to others
		return "", &StartError{Step: StepCheck, Problem: "it is not in PATH", Hint: "give its whole path",
			Err: exec.ErrNotFound}
	}
	program, err = CheckWritable(s.Path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(program)
	if err != nil {
		return "", &StartError{Step: StepCheck, Problem: reason(err), Err: err}
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return "", notExecutable(program, nil)
	}
	if s.SHA256 == "" {
		return program, nil
	}
	return program, CheckSum(program, s.SHA256)
}

func notExecutable(path string, err error) *StartError {
	return &StartError{
		Step: StepCheck, Problem: "it is not executable",
		Hint: "chmod +x " + path, Err: err,
	}
}

// reason is the error without the system call and the path: the message has these already.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// SumOr stands between several checksums in Spec.SHA256.
const SumOr = " or "

// CheckSum compares a program with a sha256 in hex, or several with SumOr between them. The error is a *StartError.
func CheckSum(path, want string) error {
	h := sha256.New()
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		_, err = io.Copy(h, f)
	}
	if err != nil {
		return &StartError{Step: StepCheck, Problem: "its checksum cannot be computed: " + reason(err), Err: err}
	}
	if got := hex.EncodeToString(h.Sum(nil)); !slices.ContainsFunc(strings.Split(want, SumOr), func(sum string) bool {
		return strings.EqualFold(got, sum)
	}) {
		return &StartError{
			Step: StepCheck, Err: ErrChecksum,
			Problem: fmt.Sprintf("its sha256 is %s, not %s", got, want),
			Hint:    "if you have replaced the program yourself, change the checksum in the config",
		}
	}
	return nil
}

// CheckWritable refuses a program that other users may replace: the file, a directory on its path, or a directory that
// holds a link of its path is writable by others. In a sticky directory, such as /tmp, others may add files but not
// replace ours or root's. This process's own program is always accepted: a user who can replace it needs no plugin.
// It returns the path without links; the error is a *StartError.
//
// It does not protect against this user: the files may be replaced between check and start.
func CheckWritable(path string) (program string, err error) {
	if path, err = filepath.Abs(path); err == nil {
		program, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", &StartError{Step: StepCheck, Problem: "the program is not there: " + reason(err), Err: err}
	}
	if self, err := os.Executable(); err == nil && sameFile(self, program) {
		return program, nil
	}
	return walk(path, func(dir, below string) error {
		info, err := os.Stat(dir)
		if err == nil && below == "" {
			return checkOpen(dir, info, nil)
		}
		var held fs.FileInfo
		if err == nil {
			held, err = os.Lstat(below)
		}
		if err != nil {
			return &StartError{Step: StepCheck, Problem: dir + ": " + reason(err), Err: err}
		}
		return checkOpen(dir, info, held)
	})
}

// maxLinks is how many symbolic links a path may have, as in Linux.
const maxLinks = 40

// walk resolves a path as the system does, name by name and through links. It calls look for each directory with the
// entry that the path uses there, at last for the file with "", and returns the path of the file without links.
func walk(path string, look func(at, below string) error) (string, error) {
	at, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0]) // also of "", "." and ".."
		if rest = rest[1:]; next == at || next == filepath.Dir(at) {
			at = next
			continue
		}
		if err := look(at, next); err != nil {
			return "", err
		}
		target, err := os.Readlink(next)
		if err != nil { // no link
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", &StartError{Step: StepCheck, Problem: path + " leads over too many links"}
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, look(at, "")
}

// checkOpen is CheckWritable for one file or directory. below is the directory's entry on the path; nil for a file.
func checkOpen(at string, info, below fs.FileInfo) error {
	open := info.Mode().Perm()&0o002 != 0
	sticky := info.Mode().IsDir() && info.Mode()&fs.ModeSticky != 0
	switch {
	case open && !sticky:
		return &StartError{
			Step: StepCheck, Err: ErrWritable,
			Problem: fmt.Sprintf("%s is writable by others (%v)", at, info.Mode()),
			Hint:    "chmod o-w " + at,
		}
	case open && below != nil && !trusted(below):
		return &StartError{
			Step: StepCheck, Err: ErrWritable,
			Problem: fmt.Sprintf("%s lies in %s, which is writable by others, and belongs to somebody else", below.Name(), at),
			Hint:    "put it into a directory that only you can write to",
		}
	}
	return nil
}

// trusted reports whether a file belongs to us or to root.
func trusted(info fs.FileInfo) bool {
	uid, ok := owner(info)
	return ok && (uid == 0 || uid == os.Geteuid())
}

func sameFile(a, b string) bool {
	ia, err1 := os.Stat(a)
	ib, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(ia, ib)
}

// hintOfScript is a further line for a script that does not begin as a plugin, "" for other programs.
func hintOfScript(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	var first [2]byte
	if _, err := io.ReadFull(f, first[:]); err != nil || string(first[:]) != "#!" {
		return ""
	}
	return "\n  a script without the SDK is run by exec: ledgerd run NAME --plugin exec --with command=" + path
}

// explainStart explains why the operating system did not start the program.
func explainStart(path string, err error) *StartError {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return &StartError{
			Step: StepStart, Err: err, Problem: "it is not a program for this machine",
			Hint: "wrong architecture or operating system, or a script without a first line #!",
		}
	case errors.Is(err, fs.ErrPermission):
		return notExecutable(path, err)
	case errors.Is(err, fs.ErrNotExist):
		return &StartError{
			Step: StepStart, Err: err, Problem: "the system does not find it, though it is there",
			Hint: "the interpreter of a script, or the loader of a dynamically linked program, is missing",
		}
	default:
		return &StartError{Step: StepStart, Err: err, Problem: reason(err)}
	}
}
