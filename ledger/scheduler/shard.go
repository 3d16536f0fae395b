package scheduler

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Slots is the number of hash slots; see Slot.
const Slots = 1024

// Slot returns the hash slot of a shard key: the first two bytes of its SHA-256, big endian, modulo Slots.
func Slot(shardKey string) int {
	h := sha256.Sum256(append(make([]byte, 0, 256), shardKey...)) // mostly on the stack
	return int(binary.BigEndian.Uint16(h[:2])) % Slots
}

// Shard is a part of the slots: those that are Index modulo Count, 0 ≤ Index < Count ≤ Slots. The zero value is all.
type Shard struct{ Index, Count int }

func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.Index, s.Count) }

// Covers reports whether a claim of this shard takes items of a slot.
func (s Shard) Covers(slot int) bool { return s.Count == 0 || slot%s.Count == s.Index }
