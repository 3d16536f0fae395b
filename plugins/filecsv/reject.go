package filecsv

import (
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// rejects writes the bad rows of one item to a file: line, column and reason, then the row as it was. The file gets
// its name only when it is complete. A nil *rejects drops all rows.
type rejects struct {
	root *os.Root // reject_dir; a name cannot lead out of it
	name string
	temp string // of this attempt
	file *os.File
	csv  *csv.Writer
	row  []string
}

// newRejects names the file after the item and not after the attempt, so that another attempt replaces it. identity
// distinguishes files of the same name in different folders.
func newRejects(dir, path, identity string, attempt int64) (*rejects, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, rejectError(err)
	}
	base := strings.Map(func(c rune) rune {
		if strings.ContainsRune(".-_", c) || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			return c
		}
		return '_'
	}, filepath.Base(path))
	sum := sha256.Sum256([]byte(identity))
	r := &rejects{root: root, name: base[:min(len(base), 100)] + "." + hex.EncodeToString(sum[:6]) + ".rejects.csv"}
	// Remove the files of killed attempts. An earlier attempt that was only paused cannot rename its file afterwards.
	for n := max(1, attempt-10); n < attempt; n++ {
		root.Remove(r.tempOf(n))
	}
	r.temp = r.tempOf(attempt)
	return r, nil
}

func (r *rejects) tempOf(attempt int64) string {
	return "." + r.name + "." + strconv.FormatInt(attempt, 10) + ".tmp"
}

func rejectError(err error) error {
	return tryAgain("reject_file", "reject_dir: %v", err)
}

// add writes a bad row of a file with these columns.
func (r *rejects) add(columns []string, b BadRow, fields [][]byte) error {
	if r == nil {
		return nil
	}
	if r.file == nil {
		f, err := r.root.OpenFile(r.temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return rejectError(err)
		}
		r.file, r.csv = f, csv.NewWriter(f)
		r.write(append([]string{"line", "column", "reason"}, columns...))
	}
	r.row = append(r.row[:0], strconv.FormatInt(b.Line, 10), b.Column, b.Reason)
	for _, f := range fields {
		r.row = append(r.row, string(f))
	}
	return r.write(r.row)
}

func (r *rejects) write(row []string) error {
	if err := r.csv.Write(row); err != nil {
		return rejectError(err)
	}
	return nil
}

// commit renames the file to its final name and returns its path. Without bad rows it removes the file of an earlier
// attempt and returns "".
func (r *rejects) commit() (string, error) {
	if r == nil {
		return "", nil
	}
	if r.file == nil {
		if err := r.root.Remove(r.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", rejectError(err)
		}
		return "", nil
	}
	r.csv.Flush()
	err := errors.Join(r.csv.Error(), r.file.Sync())
	if err == nil {
		err = r.root.Rename(r.temp, r.name)
	}
	if err != nil {
		return "", rejectError(err)
	}
	return filepath.Join(r.root.Name(), r.name), nil
}

// close removes the file unless it was committed.
func (r *rejects) close() {
	if r == nil {
		return
	}
	if r.file != nil {
		r.file.Close()
		r.root.Remove(r.temp) // fails after commit
	}
	r.root.Close()
}
