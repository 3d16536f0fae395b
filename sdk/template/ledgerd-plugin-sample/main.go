// Command ledgerd-plugin-sample counts the lines and words of text files. ledgerd starts it by itself:
//
//	ledgerd run sample --plugin-dir . README.md
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/ledgerd/ledgerd/sdk"
)

// Config is what a machine allows and has (--with).
type Config struct {
	MaxBytes int64 `json:"max_bytes" tune:"true" default:"100000000" schema:"min=1" doc:"size of the largest file that is taken"`
}

// In is what is to be done (--set); the command line fills Path.
type In struct {
	Path string `json:"path" input:"file" doc:"the text file"`
}

// Out is the result.
type Out struct {
	Lines int `json:"lines"`
	Words int `json:"words"`
}

func count(ctx context.Context, cfg *Config, it sdk.Item[In]) (Out, error) {
	var out Out
	f, err := os.Open(it.Payload.Path)
	if err != nil {
		return out, err // a plain error: tried again later
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return out, err
	}
	if info.Size() > cfg.MaxBytes {
		return out, sdk.Permanent(sdk.Code("too_large", fmt.Errorf("it has %d bytes, at most %d", info.Size(), cfg.MaxBytes)))
	}
	s := bufio.NewScanner(f)
	s.Buffer(nil, max(bufio.MaxScanTokenSize, int(info.Size())+1)) // a line may be the whole file
	for read := int64(0); ; {
		if !s.Scan() {
			return out, s.Err()
		}
		if ctx.Err() != nil { // cancelled, out of time, or ledgerd stops
			return out, ctx.Err()
		}
		out.Lines++
		out.Words += len(strings.Fields(s.Text()))
		read = min(read+int64(len(s.Bytes()))+1, info.Size()) // the last line may have no line feed
		it.Progress(read, info.Size(), "bytes")
	}
}

func plugin() *sdk.Plugin {
	p := sdk.New("sample", "0.1.0", count)
	p.Doc = "Counts the lines and words of text files."
	p.Match = []string{"*.txt", "*.md"}
	return p
}

func main() { sdk.Main(plugin()) }
