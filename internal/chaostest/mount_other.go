//go:build unix && !linux

package chaostest

import "errors"

var errNoMount = errors.New("small file systems in memory are made on Linux only")

func mount(string, int64) error { return errNoMount }

func unmount(string) error { return errNoMount }
