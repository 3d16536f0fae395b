// Package access decides which requests the HTTP API answers: by the token and its scopes, by the name under which the
// server was addressed, by the site from which a browser sends it, and by how often wrong tokens came from an address.
//
// A token is a secret that a program sends as "Authorization: Bearer ldg_…". The configuration holds its SHA-256 alone:
// a token has 160 random bits, so it cannot be guessed from its hash. Tokens are not kept in the ledger: otherwise a
// program that may write to the ledger could give itself rights.
package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"slices"
	"strings"
)

// Scope is one thing that a token may do.
type Scope string

// The scopes.
const (
	Read    Scope = "read"
	Payload Scope = "payload"
	Add     Scope = "add"
	Work    Scope = "work"
	Operate Scope = "operate"
	Admin   Scope = "admin"
)

// Scopes are all scopes.
var Scopes = []Scope{Read, Payload, Add, Work, Operate, Admin}

// ScopeNames returns the names of all scopes, for people.
func ScopeNames() string {
	var names []string
	for _, s := range Scopes {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// Allows describes what a scope is for.
func (s Scope) Allows() string {
	return map[Scope]string{
		Read:    "look at items, kinds and figures",
		Payload: "see payloads, outputs and logs as well",
		Add:     "add items",
		Work:    "claim items and end their attempts",
		Operate: "change kinds; retry, cancel and decide",
		Admin:   "all of these",
	}[s]
}

// Grant is what a caller may do.
type Grant struct {
	Name   string // of the token, for the journal and the log
	Scopes []Scope
	Kinds  []string // the kinds that it may see and change; nil: all
	Agent  string   // prefix of the agents as which it may claim; "": any name
}

// Anyone is the grant of a server that asks for no token.
var Anyone = Grant{Name: "anyone", Scopes: []Scope{Admin}}

// May reports whether it has a scope.
func (g Grant) May(s Scope) bool {
	return slices.Contains(g.Scopes, s) || slices.Contains(g.Scopes, Admin)
}

// MaySee reports whether it may see and change a kind.
func (g Grant) MaySee(kind string) bool { return g.Kinds == nil || slices.Contains(g.Kinds, kind) }

// MayClaimAs reports whether it may claim under the name of an agent.
func (g Grant) MayClaimAs(agent string) bool { return strings.HasPrefix(agent, g.Agent) }

// Token is an access token as the configuration has it.
type Token struct {
	Grant
	Hash [sha256.Size]byte
}

const (
	prefix      = "ldg_"
	randomBytes = 20
)

var encoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// NewToken makes a token: ldg_, then 160 random bits with their CRC-32, in base 32. By the checksum, scanners for
// secrets recognise a token, and a token that was cut or mistyped differs from one that was revoked.
func NewToken() string {
	secret := make([]byte, randomBytes, randomBytes+crc32.Size)
	_, _ = rand.Read(secret) // it never fails
	secret = binary.BigEndian.AppendUint32(secret, crc32.ChecksumIEEE(secret))
	return prefix + strings.ToLower(encoding.EncodeToString(secret))
}

// IsToken reports whether a text has the form of a token.
func IsToken(text string) bool {
	encoded, ok := strings.CutPrefix(text, prefix)
	secret, err := encoding.DecodeString(strings.ToUpper(encoded))
	return ok && err == nil && len(secret) == randomBytes+crc32.Size &&
		encoded == strings.ToLower(encoding.EncodeToString(secret)) && // the last letter has unused bits
		binary.BigEndian.Uint32(secret[randomBytes:]) == crc32.ChecksumIEEE(secret[:randomBytes])
}

// Hash returns the hash of a token, as the configuration keeps it.
func Hash(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// ParseHash reads a hash as the configuration has it, in hexadecimal digits.
func ParseHash(text string) (hash [sha256.Size]byte, ok bool) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != sha256.Size {
		return hash, false
	}
	return [sha256.Size]byte(b), true
}
