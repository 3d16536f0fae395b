// Package wire is the protocol between ledgerd and a plugin's process: the handshake, the
// messages, the limits, the certificate of either side. It has no logic beyond that. Plugins in Go
// use package sdk; this package is for hosts and for SDKs.
//
// # Handshake
//
// A plugin is a program that speaks gRPC over a Unix socket and is started by ledgerd, by
// the rules of hashicorp/go-plugin. In any language, and in short (docs/plugins/any-language.md
// has all of it, with the rules of the stream):
//
//  1. If the environment variable [CookieKey] is not [CookieValue], it was not started as a
//     plugin: tell the person so on stderr and exit with 1.
//  2. PLUGIN_PROTOCOL_VERSIONS lists what the host speaks, separated by commas. Take the
//     highest that the plugin speaks too; today there is only [Version].
//  3. Bind a Unix socket in the directory PLUGIN_UNIX_SOCKET_DIR.
//  4. If [ClientKey] is set, serve TLS with a certificate of the plugin's own and
//     accept that client certificate only.
//  5. Serve grpc.health.v1.Health with the service "plugin", plugin.GRPCController (its
//     Shutdown answers, then exits with 0) and ledgerd.plugin.v1.Plugin.
//  6. Print one line on stdout and flush it: 1|1|unix|PATH|grpc|CERT, where CERT is the
//     certificate, DER in base64 without padding, or empty without TLS.
//  7. Print nothing else on stdout. Read stdin and exit when it ends: ledgerd is gone then.
//     The output on stderr is kept as the crash report.
//
// # The stream
//
// All items of a process travel on one bidirectional stream. The plugin grants credits, the
// host sends no more items than it has credits, each item gets exactly one result, in any
// order. Every message may carry many of everything: that is what makes it fast, so both
// sides gather what they have and flush when there is nothing more to do.
package wire

import (
	_ "embed"
	"strings"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
)

//go:generate sh generate.sh

// Proto is the text of the protocol, plugin.proto.
//
//go:embed plugin.proto
var Proto string

// The cookie marks a program that was started as a plugin. It is no secret.
const (
	CookieKey   = "LEDGERD_PLUGIN"
	CookieValue = "6a0b4f0e-ledgerd"
)

// ClientKey is the environment variable with the host's certificate, where the connection has TLS.
const ClientKey = "PLUGIN_CLIENT_CERT"

// HostKey is the environment variable that names the ledgerd process that started the plugin. It is set only on
// systems where ledgerd can know that name. Children of a plugin inherit the variable unless the plugin removes it.
// While any process that has it lives, the leases of a killed ledgerd are not taken back before they expire.
const HostKey = "LEDGERD_PROCESS"

// Version is the protocol spoken here. It changes only for incompatible changes.
const Version = 1

// Service is the name under which go-plugin knows the protocol.
const Service = "ledgerd"

// NameForm is the form of the names of plugins and kinds.
var NameForm = lazyregexp.New(`^[a-z0-9][a-z0-9-]{0,63}$`)

// VersionForm is the form of the versions of plugins, as on semver.org.
var VersionForm = lazyregexp.New(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// FeaturePrevious is the feature of a plugin that asks for Item.previous.
const FeaturePrevious = "previous"

// Limits of the values in messages. Where the ledger has the same limit, the number is the same. A value beyond them is
// refused or cut on the plugin's side, so that it never ends the stream.
const (
	MaxMessage   = 16 << 20 // bytes of one message, on both sides
	MaxPayload   = 1 << 20  // bytes, of items and of emitted ones
	MaxOutput    = 1 << 20  // bytes
	MaxCode      = 64       // bytes
	MaxError     = 8 << 10  // bytes
	MaxLog       = 16 << 10 // bytes
	MaxEmit      = 10_000   // items that one attempt may emit
	MaxEmitBytes = 8 << 20  // bytes of all that one attempt emits
	MaxKind      = 64       // bytes
	MaxScope     = 256      // bytes
	MaxKey       = 2048     // bytes
)

// ProblemText is what a plugin reports of its config, in one line.
func ProblemText(problems []*Problem) string {
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = strings.TrimPrefix(p.Field+": "+p.Message, ": ")
	}
	return strings.Join(texts, "; ")
}
