package sqlite

import "encoding/binary"

// logIndex is what the index of a write-ahead log, the -shm file, tells of it. Its form is part of
// SQLite's documented file formats (sqlite.org/walformat.html), in the byte order of the machine.
type logIndex struct {
	page   uint64    // size of a page, bytes
	frames uint32    // valid pages in the log
	moved  uint32    // of them, from the first: in the file already
	marks  [5]uint32 // of the readers that hold lock i: they read the log up to there
}

const (
	indexPage, indexFrames, indexMoved, indexMarks = 14, 16, 96, 100 // offsets
	indexReadLock                                  = 123             // offset of the lock of the first mark
	indexSize                                      = 136
)

func readLogIndex(b []byte) (l logIndex, ok bool) {
	if len(b) < indexSize || b[12] == 0 { // not initialised
		return l, false
	}
	order := binary.NativeEndian
	if l.page = uint64(order.Uint16(b[indexPage:])); l.page == 1 {
		l.page = 65536
	}
	l.frames, l.moved = order.Uint32(b[indexFrames:]), order.Uint32(b[indexMoved:])
	for i := range l.marks {
		l.marks[i] = order.Uint32(b[indexMarks+4*i:])
	}
	return l, true
}

// waiting is how many bytes of the log are not in the file yet.
func (l logIndex) waiting() uint64 {
	if l.moved > l.frames {
		return 0
	}
	return uint64(l.frames-l.moved) * l.page
}

// holds says whether who has the lock at this offset reads an old state, beyond which the log is
// not moved into the file.
func (l logIndex) holds(lock int) bool {
	i := lock - indexReadLock
	return i > 0 && i < len(l.marks) && l.marks[i] < l.frames || i == 0 && l.frames > l.moved
}
