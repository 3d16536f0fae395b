package access

import (
	"encoding/hex"
	"strings"
	"testing"
)

func TestToken(t *testing.T) {
	token := NewToken()
	if !IsToken(token) || token == NewToken() || len(token) != len("ldg_")+39 {
		t.Errorf("%q is no token", token)
	}
	for i := range token { // one wrong character is noticed
		other := "x"
		if token[i] == 'x' {
			other = "y"
		}
		if wrong := token[:i] + other + token[i+1:]; IsToken(wrong) {
			t.Errorf("%q is a token, too", wrong)
		}
	}
	for _, text := range []string{"", "ldg_", token[:20], token + "a", strings.ToUpper(token), "x" + token} {
		if IsToken(text) {
			t.Errorf("%q is a token", text)
		}
	}
	hash := Hash(token)
	if got, ok := ParseHash(hex.EncodeToString(hash[:])); !ok || got != hash {
		t.Errorf("%x, %v", got, ok)
	}
	for _, text := range []string{"", "00", hex.EncodeToString(hash[:]) + "00", token} {
		if _, ok := ParseHash(text); ok {
			t.Errorf("%q is a hash", text)
		}
	}
}

func TestGrant(t *testing.T) {
	g := Grant{Scopes: []Scope{Read}, Kinds: []string{"mail"}, Agent: "box-"}
	if !g.May(Read) || g.May(Add) || !g.MaySee("mail") || g.MaySee("page") || !g.MayClaimAs("box-a") ||
		g.MayClaimAs("ann") {
		t.Errorf("%+v", g)
	}
	for _, s := range Scopes {
		if !Anyone.May(s) || s.Allows() == "" {
			t.Errorf("scope %s", s)
		}
	}
	if !Anyone.MaySee("any") || !Anyone.MayClaimAs("any") || (Grant{Kinds: []string{}}).MaySee("any") {
		t.Error("no kinds are all kinds, an empty list is none")
	}
}

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:7374": true, "localhost:0": true, "[::1]:80": true,
		"127.8.8.8:1": true, "0.0.0.0:7374": false, ":7374": false, "ledger.example:80": false, "10.0.0.1:80": false} {
		if got := IsLoopback(address); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}
