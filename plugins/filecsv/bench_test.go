package filecsv

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// people returns a file of ordinary rows: numbers, words, a date, an e-mail address.
func people(rows int, quoted bool) []byte {
	var b bytes.Buffer
	rnd := rand.New(rand.NewPCG(1, 2))
	first := []string{"Anna", "Bertrand", "Chloë", "Dmitri", "Eve", "Fatima"}
	last := []string{"Ng", "Kowalski", "Schmidt", "García", "O'Neill"}
	b.WriteString("id,first_name,last_name,email,age,balance,joined,city,note\n")
	for i := range rows {
		f, l := first[rnd.IntN(len(first))], last[rnd.IntN(len(last))]
		note := "likes walking in the hills and long letters"
		if quoted {
			note = `"likes walking, ""hills"" and letters"`
		}
		fmt.Fprintf(&b, "%d,%s,%s,%s%d@example.com,%d,%d.%02d,%04d-%02d-%02d,Springfield,%s\n",
			1_000_000+i, f, l, l, i, 18+rnd.IntN(60), rnd.IntN(100_000), rnd.IntN(100),
			1990+rnd.IntN(35), 1+rnd.IntN(12), 1+rnd.IntN(28), note)
	}
	return b.Bytes()
}

// BenchmarkFile compares the whole plugin with a loop of encoding/csv on the same file.
func BenchmarkFile(b *testing.B) {
	for _, quoted := range []bool{false, true} {
		path := filepath.Join(b.TempDir(), "people.csv")
		text := people(300_000, quoted)
		must.OK(b, os.WriteFile(path, text, 0o600))
		b.Run(fmt.Sprintf("encoding_csv/quoted=%v", quoted), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				f, err := os.Open(path)
				must.OK(b, err)
				readAll(f)
				f.Close()
			}
		})
		b.Run(fmt.Sprintf("plugin/quoted=%v", quoted), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				must.Do(b)(scanPath(b.Context(), path, plain(), plainOptions()))
			}
		})
	}
}

// readAll is a loop over encoding/csv that does nothing else.
func readAll(src io.Reader) {
	r := csv.NewReader(src)
	r.ReuseRecord = true
	for {
		if _, err := r.Read(); err != nil {
			return
		}
	}
}
