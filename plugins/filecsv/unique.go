package filecsv

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"os"
	"slices"
)

// spillRows is how many values of a unique column stay in memory, 24 bytes each. More go to a temporary file.
const spillRows = 5_000_000

// triple is an entry of a sorter, 24 bytes.
type triple [3]uint64

func (a triple) compare(b triple) int {
	for i := range a {
		if a[i] != b[i] {
			return cmp.Compare(a[i], b[i])
		}
	}
	return 0
}

// digest returns the triple of a value of a unique column: half of its SHA-256, and its line.
//
// Two different values of a column count as equal if these 128 bits agree. Among n values that happens with a
// probability of at most n²/2¹²⁹: 4·10⁻²⁶ for 5 million rows, 2·10⁻²¹ for a thousand million. An attacker needs 2⁶⁴
// hashes to cause it.
func digest(v []byte, line int64) triple {
	h := sha256.Sum256(v)
	return triple{binary.BigEndian.Uint64(h[:]), binary.BigEndian.Uint64(h[8:]), uint64(line)}
}

// sorter sorts triples. It collects them in parts, because a single growing slice takes twice the memory. When there
// are limit of them, it sorts them and writes them to a temporary file.
type sorter struct {
	limit int
	parts [][]triple // all but the last are full and sorted
	free  [][]triple // parts not in use
	file  *os.File   // it has no name, so nothing is left after a crash
	ends  []int64    // the ends of the sorted runs in file
}

// partsInMemory is the number of full parts at the limit.
const partsInMemory = 16

func (s *sorter) add(ctx context.Context, t triple) error {
	size := max(1, s.limit/partsInMemory)
	n := len(s.parts)
	if n == 0 || len(s.parts[n-1]) == size {
		if n == partsInMemory {
			if err := s.spill(ctx); err != nil {
				return err
			}
		} else if n > 0 {
			slices.SortFunc(s.parts[n-1], triple.compare)
		}
		s.parts = append(s.parts, s.newPart(size))
	}
	last := &s.parts[len(s.parts)-1]
	*last = append(*last, t)
	return nil
}

// newPart returns memory for a part: that of a written part, or new memory for the whole part. The first part begins
// empty, because it may stay small.
func (s *sorter) newPart(size int) []triple {
	if n := len(s.free); n > 0 {
		part := s.free[n-1]
		s.free = s.free[:n-1]
		return part[:0]
	}
	if len(s.parts) == 0 {
		return nil
	}
	return make([]triple, 0, size)
}

// spill sorts the triples in memory and appends them to the file.
func (s *sorter) spill(ctx context.Context) error {
	if s.file == nil {
		f, err := os.CreateTemp("", "ledgerd-filecsv-*")
		if err != nil {
			return spillError(err)
		}
		s.file = f
		if err := os.Remove(f.Name()); err != nil {
			return spillError(err)
		}
	}
	w := bufio.NewWriterSize(s.file, 1<<20)
	err := merge(ctx, s.inMemory(), func(t triple) error {
		b := w.AvailableBuffer()
		for _, n := range t {
			b = binary.BigEndian.AppendUint64(b, n)
		}
		w.Write(b) // Flush reports the error
		return nil
	})
	if err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return spillError(err)
	}
	end, err := s.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return spillError(err)
	}
	s.ends = append(s.ends, end)
	s.parts, s.free = nil, s.parts
	return nil
}

func spillError(err error) error {
	return tryAgain("temp_file", "unique: the temporary file: %v", err)
}

// close frees the memory and the file.
func (s *sorter) close() {
	if s.file != nil {
		s.file.Close()
	}
	s.parts, s.free, s.file = nil, nil, nil
}

// inMemory sorts the last part and returns all parts as runs.
func (s *sorter) inMemory() []run {
	var runs []run
	for i, part := range s.parts {
		if i == len(s.parts)-1 {
			slices.SortFunc(part, triple.compare)
		}
		runs = append(runs, run{next: fromMemory(part)})
	}
	return runs
}

// each calls f with all triples in order. No triple may be added afterwards.
func (s *sorter) each(ctx context.Context, f func(triple) error) error {
	runs := s.inMemory()
	start := int64(0)
	for _, end := range s.ends {
		runs = append(runs, run{next: fromFile(io.NewSectionReader(s.file, start, end-start))})
		start = end
	}
	return merge(ctx, runs, f)
}

// merge calls f with the triples of all runs in order.
func merge(ctx context.Context, runs []run, f func(triple) error) error {
	for i := range runs {
		if err := runs[i].advance(); err != nil {
			return err
		}
	}
	runs = slices.DeleteFunc(runs, func(r run) bool { return r.ended })
	for n := 0; ; n++ {
		if n%(1<<16) == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(runs) == 0 {
			return nil
		}
		least := 0
		for i := range runs {
			if runs[i].head.compare(runs[least].head) < 0 {
				least = i
			}
		}
		if err := f(runs[least].head); err != nil {
			return err
		}
		if err := runs[least].advance(); err != nil {
			return err
		}
		if runs[least].ended {
			runs = slices.Delete(runs, least, least+1)
		}
	}
}

// run is a sorted sequence of triples.
type run struct {
	head  triple // valid until ended
	ended bool
	next  func() (triple, error) // io.EOF at the end
}

func (r *run) advance() (err error) {
	r.head, err = r.next()
	if r.ended = err == io.EOF; r.ended {
		return nil
	}
	return err
}

func fromMemory(all []triple) func() (triple, error) {
	return func() (t triple, err error) {
		if len(all) == 0 {
			return t, io.EOF
		}
		t, all = all[0], all[1:]
		return t, nil
	}
}

func fromFile(file io.Reader) func() (triple, error) {
	in, b := bufio.NewReaderSize(file, 64<<10), make([]byte, 24)
	return func() (t triple, err error) {
		if _, err = io.ReadFull(in, b); err != nil && err != io.EOF {
			err = spillError(err)
		}
		for i := range t {
			t[i] = binary.BigEndian.Uint64(b[8*i:])
		}
		return t, err
	}
}
