package config

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// Grants returns the tokens with their rights, sorted by name.
func (a *API) Grants() (all []access.Token) {
	for _, name := range slices.Sorted(maps.Keys(a.Tokens)) {
		t := a.Tokens[name]
		grant := access.Grant{Name: name, Kinds: t.Kinds, Agent: t.Agent}
		for _, s := range t.Scopes {
			grant.Scopes = append(grant.Scopes, access.Scope(s))
		}
		hash, _ := access.ParseHash(t.SHA256) // Load has checked it
		all = append(all, access.Token{Grant: grant, Hash: hash})
	}
	return all
}

// checkAPI checks the API's address and tokens. An error does not repeat a refused value, since it may be a token.
func (d *decoder) checkAPI() {
	a := &d.config.API
	d.checkAddress("api.listen", a.Listen)
	if err := CheckPrefix(a.Prefix); err != nil {
		d.fail("api.prefix", err)
	}
	if d.config.UI.Serve && a.Listen == "" {
		d.fail("ui.serve", &ledger.Error{Message: "there is no address to serve the pages at",
			Hint: "the pages are served beside the API: listen = \"127.0.0.1:7374\" in [api]"})
	}
	hashes := map[[sha256.Size]byte]string{}
	for _, name := range slices.Sorted(maps.Keys(a.Tokens)) {
		path, t := joinPath("api.tokens", name), a.Tokens[name]
		d.checkName(path, name)
		hash, ok := access.ParseHash(t.SHA256)
		switch first := hashes[hash]; {
		case access.IsToken(t.SHA256):
			d.fail(path+".sha256", &ledger.Error{Message: "is a token, and must be its SHA-256",
				Hint: "anybody who reads this file could use it: make another one"})
		case !ok:
			d.fail(path+".sha256", faultf("must be a SHA-256: 64 digits in hex"))
		case first != "":
			d.fail(path+".sha256", faultf("the token %s has the same", first))
		}
		hashes[hash] = name
		if len(t.Scopes) == 0 {
			d.fail(path+".scopes", faultf("must name at least one scope: %s", access.ScopeNames()))
		}
		for _, s := range t.Scopes {
			if !slices.Contains(access.Scopes, access.Scope(s)) {
				d.fail(path+".scopes", faultf("%q is not a scope: %s", s, access.ScopeNames()))
			}
		}
		for _, kind := range t.Kinds {
			d.checkName(path+".kinds", kind)
		}
		if len(t.Agent) > bounds.MaxAgent {
			d.fail(path+".agent", faultf("must have at most %d bytes, has %d", bounds.MaxAgent, len(t.Agent)))
		}
	}
}

var prefixForm = lazyregexp.New(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*$`)

// CheckPrefix refuses a text that is no prefix of paths; "" means no prefix.
func CheckPrefix(prefix string) error {
	if !prefixForm().MatchString(prefix) || len(prefix) > bounds.MaxKey {
		return faultf("%q is not a prefix of paths, such as /ledger: letters, digits and . _ ~ - between slashes, none at the end",
			prefix)
	}
	return nil
}

// checkAddress refuses a text that is no address to listen on, and reports whether there is one; "" means none.
func (d *decoder) checkAddress(path, address string) (ok bool) {
	if address == "" {
		return false
	}
	_, port, err := net.SplitHostPort(address)
	if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 0 || n > 65535 {
		d.fail(path, &ledger.Error{Message: fmt.Sprintf("%q is not an address", address), Hint: `such as "127.0.0.1:7373"`})
		return false
	}
	return true
}
