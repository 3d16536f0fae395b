package pluginproc

import (
	"os"
	"time"

	"google.golang.org/protobuf/proto"
)

// Spec describes which program to start and how.
type Spec struct {
	// Path of the program. Required.
	Path string
	// Args are its arguments, without the program's name.
	Args []string
	// Env is what the plugin's environment has besides the allow-list, as "NAME=value".
	// Secrets do not belong here but in Configure.
	Env []string
	// Dir is the working directory; "" means the host's.
	Dir string
	// SHA256 of the program in hex, checked before the start; "" means not checked.
	SHA256 string
	// Limits of what its processes may take.
	Limits Limits
	// NoMTLS leaves the connection without TLS, for plugins in languages that cannot do it. The
	// socket's directory still keeps other users out.
	NoMTLS bool
	// SocketDir is where the private directory of the socket is made; "" means the system's
	// directory for temporary files. It must be short: socket addresses are.
	SocketDir string
	// StartTimeout is how long the start may take, up to the answered health check; 0 means 10 s.
	StartTimeout time.Duration
	// OnLog gets what the plugin writes to stderr and stdout, line by line, cut and rationed
	// (see MaxLine, LogRate). source is "stderr" or "stdout". It is called one line at a time,
	// not after Done, and must not block.
	OnLog func(source, line string)
	// Trace gets every message to and from the plugin; nil means no trace. It is called from
	// several goroutines and must not change the message nor keep it.
	Trace func(Message)
}

// Message is one message of a connection.
type Message struct {
	Sent   bool   // to the plugin
	Method string // "/ledgerd.plugin.v1.Plugin/Process"
	Body   proto.Message
	Err    error // instead of Body: how a call, or the plugin's side of a stream, ended
}

// Bounds of what is taken from a plugin's output.
const (
	MaxLine     = 256 << 10 // bytes of a line passed on; the rest of it is dropped
	LogRate     = 1000      // lines a second passed on, the same number at once; the rest is counted
	CrashReport = 64 << 10  // last bytes of stderr that are kept
)

const (
	startTimeout = 10 * time.Second
	// handshakeMax is the longest handshake line: a certificate is about 1 KiB.
	handshakeMax = 16 << 10
)

// passedOn are the variables that a plugin gets from the host's environment: what programs
// need to find other programs, files, time zones and certificates. No proxies: they decide
// whom a plugin talks to, and that is config. No other: they may hold passwords.
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
