// Command clientgen writes the clients of the HTTP API into a folder: make generate runs it.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ledgerd/ledgerd/internal/api/clientgen"
)

func main() {
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "clientgen:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	files, err := clientgen.Files()
	if err != nil {
		return err
	}
	for path, text := range files {
		path = filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
