// Package apt finds programs that tests need, and installs them on Debian and Ubuntu, if the user is root or sudo asks
// no password.
package apt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// LookPath is exec.LookPath that also looks where Debian puts programs that run as services: that folder is not in
// every PATH.
func LookPath(name string) (path string, err error) {
	if path, err = exec.LookPath(name); err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name)
	}
	return path, err
}

// Install installs a package. It prints each command on stderr, with who in front: the calling program and the reason.
func Install(ctx context.Context, who, name string) error {
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return errors.New("cannot install " + name + ": there is no apt-get here")
	}
	command := []string{apt}
	if os.Geteuid() != 0 {
		if exec.CommandContext(ctx, "sudo", "-n", "true").Run() != nil {
			return errors.New("cannot install " + name + ": neither root nor sudo without a password")
		}
		command = []string{"sudo", "-n", "DEBIAN_FRONTEND=noninteractive", apt}
	}
	for _, args := range [][]string{
		{"update"},
		{"install", "-y", "--no-install-recommends", name},
	} {
		line := append(command[:len(command):len(command)], args...)
		fmt.Fprintln(os.Stderr, who+":", strings.Join(line, " "))
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(line, " "), err)
		}
	}
	return nil
}
