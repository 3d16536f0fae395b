package urlcheck

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Cookies that are set on the way count until its end, on the hosts that they are for.
func TestCookiesOnTheWay(t *testing.T) {
	var asked []string
	serveCookies := func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, fmt.Sprintf("%s %s%s %s", r.Method, r.Host, r.URL.Path, r.Header.Get("Cookie")))
		_, err := r.Cookie("seen")
		switch {
		case r.URL.Path == "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case r.URL.Path == "/count":
			http.SetCookie(w, &http.Cookie{Name: "n", Value: fmt.Sprint(len(asked))})
			http.Redirect(w, r, "/count", http.StatusFound)
		case r.Host == "other.test" && r.URL.Path == "/back":
			http.Redirect(w, r, "http://www.site.test/page", http.StatusFound)
		case r.Host == "other.test":
		case r.URL.Path == "/away":
			http.SetCookie(w, &http.Cookie{Name: "seen", Value: "1"})
			http.Redirect(w, r, "http://other.test/back", http.StatusFound)
		case err != nil:
			http.SetCookie(w, &http.Cookie{Name: "seen", Value: "1", Domain: "site.test", Path: "/"})
			http.SetCookie(w, &http.Cookie{Name: "leak", Value: "1", Domain: "test", Path: "/"})
			http.SetCookie(w, &http.Cookie{Name: "closed", Value: "1", Secure: true})
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}
	}
	for _, tt := range []struct {
		url, code string
		asked     string
		hops      int
	}{
		{"http://site.test/page", "", "HEAD site.test/page |HEAD site.test/page seen=1", 1},
		// nothing is left of the check before
		{"http://site.test/page", "", "HEAD site.test/page |HEAD site.test/page seen=1", 1},
		{"http://www.site.test/away", "", "HEAD www.site.test/away |HEAD other.test/back |HEAD www.site.test/page seen=1", 2},
		{"http://site.test/loop", "redirect_loop", "HEAD site.test/loop ", 1},
	} {
		asked = nil
		inVillage(t, defaults(), serveCookies, func(t *testing.T, c *checker) {
			out, err := c.check(t.Context(), fine(tt.url))
			if got := strings.Join(asked, "|"); code(err) != tt.code || got != tt.asked || len(out.Redirects) != tt.hops {
				t.Errorf("%s: %v after %s and %d hops; want %q after %s and %d", tt.url, err, got, len(out.Redirects), tt.code,
					tt.asked, tt.hops)
			}
		})
	}
	inVillage(t, defaults(), serveCookies, func(t *testing.T, c *checker) {
		asked = nil
		if _, err := c.check(t.Context(), fine("http://site.test/count")); code(err) != "too_many_redirects" ||
			len(asked) != 11 {
			t.Errorf("a cookie that is another each time: %v after %d requests", err, len(asked))
		}
		for _, u := range []string{"http://site.test/page", "http://www.site.test/away"} { // of one process
			asked = nil
			if _, err := c.check(t.Context(), fine(u)); err != nil {
				t.Error(err)
			}
			if first, err := url.Parse(u); err != nil || asked[0] != "HEAD "+first.Host+first.Path+" " {
				t.Errorf("the first request has cookies of another check: %q", asked[0])
			}
		}
	})
}
