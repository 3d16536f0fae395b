package web

import (
	"net/http"
	"strconv"
	"testing"
	"time"
)

// A server asks to wait by several names, in seconds or by a time. The time counts from the Date of its answer.
func TestRetryAfter(t *testing.T) {
	date := time.Now().Add(time.Hour).UTC().Truncate(time.Second) // the server's clock is ahead
	in := func(d time.Duration) string { return date.Add(d).Format(http.TimeFormat) }
	epoch := func(d time.Duration) string { return strconv.FormatInt(date.Add(d).Unix(), 10) }
	type header = map[string]string
	const left, reset = "X-RateLimit-Remaining", "X-RateLimit-Reset"
	for name, c := range map[string]struct {
		status int
		header header
		want   time.Duration
	}{
		"nothing":                 {429, nil, 0},
		"seconds":                 {503, header{"Retry-After": "90"}, 90 * time.Second},
		"a date":                  {503, header{"Retry-After": in(3 * time.Second)}, 3 * time.Second},
		"a date that is over":     {429, header{"Retry-After": in(-time.Second)}, 0},
		"no time":                 {429, header{"Retry-After": "soon"}, 0},
		"none":                    {429, header{"Retry-After": "0"}, 0},
		"less":                    {429, header{"Retry-After": "-5"}, 0},
		"of an error":             {500, header{"Retry-After": "5"}, 5 * time.Second},
		"two hours":               {429, header{"Retry-After": "7200"}, 2 * time.Hour},
		"the year 9999":           {429, header{"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"}, 24 * time.Hour},
		"ten years":               {429, header{"Retry-After": "99999999999999999999"}, 24 * time.Hour},
		"reset since 1970":        {429, header{left: "0", reset: epoch(90 * time.Second)}, 90 * time.Second},
		"reset in milliseconds":   {429, header{reset: epoch(90*time.Second) + "000"}, 90 * time.Second},
		"reset in seconds":        {429, header{"RateLimit-Reset": "90"}, 90 * time.Second},
		"both":                    {429, header{"Retry-After": "5", reset: "90"}, 5 * time.Second},
		"exhausted, unavailable":  {503, header{left: "0", reset: "7"}, 7 * time.Second},
		"not exhausted":           {503, header{left: "9", reset: "7"}, 0},
		"403, exhausted":          {403, header{left: "0", "Retry-After": "3"}, 3 * time.Second},
		"403, exhausted, a reset": {403, header{left: "0", reset: epoch(time.Minute)}, time.Minute},
		"403":                     {403, header{left: "9", reset: "7"}, 0},
		"404":                     {404, header{"Retry-After": "3"}, 0},
		"200, the last one":       {200, header{left: "0", reset: "7"}, 0},
	} {
		res := &http.Response{StatusCode: c.status, Header: http.Header{"Date": {in(0)}}}
		for name, value := range c.header {
			res.Header.Set(name, value)
		}
		if got := RetryAfter(res); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if f := StatusError(res); (f.After > 0) != (c.want > 0) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
