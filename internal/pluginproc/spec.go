package pluginproc

import (
	"os"
	"time"
)

// Spec is the program to start, and how to start it.
type Spec struct {
	// Path of the program. Required.
	Path string
	// Args are its arguments, without the program's name.
	Args []string
	// Env are variables of the plugin besides the allow-list, as "NAME=value". Pass secrets to Configure instead.
	Env []string
	// Dir is the working directory; "" means the host's.
	Dir string
	// SHA256 of the program in hex, checked before the start; "" means not checked. It may be a list, with SumOr between
	// the entries: the program must have one of them.
	SHA256 string
	// Limits of the resources of its processes.
	Limits Limits
	// NoMTLS leaves the connection without TLS, for plugins in languages without mutual TLS. Other users still cannot
	// enter the socket's directory.
	NoMTLS bool
	// SocketDir is the folder of the private directory of the socket; "" means the system's directory for temporary
	// files. Addresses of sockets are short: a path of up to 41 bytes always fits.
	SocketDir string
	// StartTimeout is how long the start may take, up to the answered health check; 0 means 10 s.
	StartTimeout time.Duration
	// OnLog gets the lines that the plugin writes to stderr and stdout, up to MaxLine and LogRate. source is "stderr" or
	// "stdout". It is called for one line at a time, never after Done is closed, and must not block.
	OnLog func(source, line string)
}

// Bounds of a plugin's output.
const (
	MaxLine     = 256 << 10 // bytes of a line; the rest of the line is dropped
	LogRate     = 1000      // lines per second, and at once; further lines are only counted
	CrashReport = 64 << 10  // bytes kept of the end of stderr
)

const (
	startTimeout = 10 * time.Second
	// handshakeMax is the longest handshake line: a certificate is about 1 KiB.
	handshakeMax = 16 << 10
)

// passedOn is the allow-list of variables that a plugin gets from the host's environment: programs need them to find
// other programs, files, time zones and certificates. Proxies belong to the config. Other variables may hold passwords.
var passedOn = []string{"PATH", "HOME", "TMPDIR", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// Environ is the whole environment of the plugin, except for the variables of the handshake.
func (s *Spec) Environ() []string {
	var env []string
	for _, name := range passedOn {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return s.Limits.env(append(env, s.Env...))
}
