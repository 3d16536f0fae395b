package filecsv

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"os"
	"slices"
)

// spillRows is how many values of a unique column are held in memory, 24 bytes each. More go
// to a temporary file.
const spillRows = 5_000_000

// triple is 24 bytes to be sorted.
type triple [3]uint64

func (a triple) compare(b triple) int { return slices.Compare(a[:], b[:]) }

// digest is the triple of a value of a unique column: half of its SHA-256, and its line.
//
// Two different values of a column are taken for equal if those 128 bits agree. Among n
// values that happens with a probability of at most n²/2¹²⁹: 4·10⁻²⁶ for 5 million rows,
// 2·10⁻²¹ for a thousand million. To bring it about on purpose takes 2⁶⁴ hashes.
func digest(v []byte, line int64) triple {
	h := sha256.Sum256(v)
	return triple{binary.BigEndian.Uint64(h[:]), binary.BigEndian.Uint64(h[8:]), uint64(line)}
}

// sorter sorts triples. When limit of them are in memory they go, sorted, to a temporary file.
type sorter struct {
	limit  int
	memory []triple
	file   *os.File // without a name, so that nothing is left behind
	ends   []int64  // where the sorted runs in file end
}

func (s *sorter) add(t triple) error {
	if len(s.memory) == s.limit {
		if err := s.spill(); err != nil {
			return tryAgain("temp_file", "unique: the temporary file: %v", err)
		}
	}
	s.memory = append(s.memory, t)
	return nil
}

// spill appends the memory to the file, sorted.
func (s *sorter) spill() error {
	if s.file == nil {
		f, err := os.CreateTemp("", "ledgerd-filecsv-*")
		if err != nil {
			return err
		}
		s.file = f
		if err := os.Remove(f.Name()); err != nil {
			return err
		}
	}
	slices.SortFunc(s.memory, triple.compare)
	w := bufio.NewWriterSize(s.file, 1<<20)
	for _, t := range s.memory {
		b := w.AvailableBuffer()
		for _, n := range t {
			b = binary.BigEndian.AppendUint64(b, n)
		}
		w.Write(b) // Flush reports the error
	}
	if err := w.Flush(); err != nil {
		return err
	}
	end, err := s.file.Seek(0, io.SeekCurrent)
	s.ends = append(s.ends, end)
	s.memory = s.memory[:0]
	return err
}

// close gives the memory and the file back.
func (s *sorter) close() {
	if s.file != nil {
		s.file.Close()
	}
	s.memory, s.file = nil, nil
}

// each calls f with all triples in order. Nothing can be added afterwards.
func (s *sorter) each(ctx context.Context, f func(triple) error) error {
	slices.SortFunc(s.memory, triple.compare)
	runs := []run{{next: fromMemory(s.memory)}}
	start := int64(0)
	for _, end := range s.ends {
		runs = append(runs, run{next: fromFile(io.NewSectionReader(s.file, start, end-start))})
		start = end
	}
	for i := range runs {
		if err := runs[i].advance(); err != nil {
			return err
		}
	}
	for n := 0; ; n++ {
		if n%(1<<16) == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		least := &runs[0]
		for i := range runs {
			if r := &runs[i]; !r.ended && (least.ended || r.head.compare(least.head) < 0) {
				least = r
			}
		}
		if least.ended {
			return nil
		}
		if err := f(least.head); err != nil {
			return err
		}
		if err := least.advance(); err != nil {
			return err
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
	in := bufio.NewReaderSize(file, 64<<10)
	return func() (t triple, err error) {
		var b [24]byte
		if _, err = io.ReadFull(in, b[:]); err != nil && err != io.EOF {
			err = tryAgain("temp_file", "unique: the temporary file: %v", err)
		}
		for i := range t {
			t[i] = binary.BigEndian.Uint64(b[8*i:])
		}
		return t, err
	}
}
