// Package apt installs what tests need and a machine does not have, where that is Debian's or
// Ubuntu's way and allowed: as root, or with a sudo that asks no password.
package apt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Install installs a package. who prints, before each command on stderr, its user and reason.
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
