// Package pythontest finds a Python for tests of plugins: the first in PATH may not have the packages that they need.
package pythontest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Find puts a Python that has what sdk/python needs in front of PATH. Where there is none, its error tells what to do.
func Find() error {
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import grpc, google.protobuf, cryptography").Run() != nil {
			continue
		}
		if dir := filepath.Dir(python); dir != "." {
			return os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		}
		return nil
	}
	return fmt.Errorf("these tests need Python 3.10 or later with grpcio, protobuf and cryptography: " +
		"apt-get install python3-grpcio python3-protobuf python3-cryptography")
}
