package clientgen

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
)

// rig is a server that answers as the API does. It lends the items of keys once, and asks the agent to end when each
// of them has an end.
type rig struct {
	*httptest.Server
	keys []string
	// instead may answer a call, the nth one of its name from 1. It reports whether it did.
	instead func(call string, nth int, w http.ResponseWriter) bool
	letGo   func() // lets the handlers of items that wait go on
	poison  string // a token whose end a proxy refuses until another one is recorded
	wait    chan struct{}
	over    chan struct{} // closed when the test ends
	ended   chan struct{} // closed when all ends are recorded

	mu      sync.Mutex
	calls   map[string]int
	added   string
	endings []ending
}

type ending struct {
	Outcome, Code, Output, Worker string
	AtMost                        int
}

func newRig(t *testing.T, keys ...string) *rig {
	r := &rig{keys: keys, wait: make(chan struct{}), over: make(chan struct{}), ended: make(chan struct{}),
		calls: map[string]int{}}
	r.letGo = sync.OnceFunc(func() { close(r.wait) })
	r.Server = httptest.NewUnstartedServer(r)
	t.Cleanup(func() {
		close(r.over)
		r.letGo()
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

// ServeHTTP implements http.Handler.
func (r *rig) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	call := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]
	r.mu.Lock()
	r.calls[call]++
	nth := r.calls[call]
	r.mu.Unlock()
	if r.instead != nil && r.instead(call, nth, w) {
		return
	}
	var in struct {
		Tokens  []string
		Endings []struct {
			Token, Outcome, Code, Worker string
			Output                       json.RawMessage
			AtMost                       int `json:"at_most"`
		}
	}
	_ = json.Unmarshal(body, &in) // a list of items is none
	if r.refused(call, string(body)) {
		r.letGo()
		proxy(w, http.StatusForbidden)
		return
	}
	switch call {
	case "wait":
		<-r.wait
	case "items":
		r.mu.Lock()
		r.added = string(body)
		r.mu.Unlock()
		_, _ = io.WriteString(w, "{}")
	case "claims":
		r.claim(w, req, nth)
	default:
		var answers []string
		for _, token := range in.Tokens {
			answers = append(answers, fmt.Sprintf(`{"token":%q,"recorded":true}`, token))
		}
		r.mu.Lock()
		for _, e := range in.Endings {
			answers = append(answers, fmt.Sprintf(`{"token":%q,"recorded":true}`, e.Token))
			r.endings = append(r.endings, ending{e.Outcome, e.Code, string(e.Output), e.Worker, e.AtMost})
			if len(r.endings) == len(r.keys) {
				close(r.ended)
			}
		}
		r.mu.Unlock()
		fmt.Fprintf(w, `{"answers":[%s],"drain":false}`, strings.Join(answers, ","))
	}
}

func (r *rig) refused(call, body string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.poison != "" && call == "finish" && strings.Contains(body, r.poison) && len(r.endings) == 0
}

func (r *rig) claim(w http.ResponseWriter, req *http.Request, nth int) {
	if nth > 1 {
		select {
		case <-r.ended:
		case <-r.over:
		case <-req.Context().Done():
		}
		_, _ = io.WriteString(w, `{"leases":[],"drain":true}`)
		return
	}
	var leases []string
	for i, key := range r.keys {
		leases = append(leases, fmt.Sprintf(`{"token":"%d.1.x","id":%[1]d,"kind":"page","scope":"","key":%q,"attempt":1,`+
			`"payload":null}`, i+1, key))
	}
	fmt.Fprintf(w, `{"leases":[%s],"drain":false}`, strings.Join(leases, ","))
}

// proxy answers as a proxy does, instead of the API.
func proxy(w http.ResponseWriter, status int) bool {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<html>")
	return true
}

// refuse answers as the API does that refuses the only lease of a call.
func refuse(w http.ResponseWriter, status int, code string) bool {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"status":%d,"code":%q,"detail":"no"}`, status, code)
	return true
}

// work runs testdata/work of a language with these options, and returns what it prints. fails tells that it must end
// with an error.
func (r *rig) work(t *testing.T, interpreter, options string, fails bool) string {
	t.Helper()
	r.Start()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	file := map[string]string{"python3": "testdata/work.py", "node": "testdata/work.mjs"}[interpreter]
	cmd := exec.CommandContext(ctx, interpreter, file, r.URL, options)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+clients+"python", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if (err != nil) != fails || ctx.Err() != nil {
		t.Errorf("ended with %v\n%s", err, out)
	}
	r.mu.Lock() // what is recorded is seen from here on
	defer r.mu.Unlock()
	return string(out)
}

// TestWorkers: a worker reports each end until it is recorded, whatever answers in between.
func TestWorkers(t *testing.T) {
	const length = `{"length":5}`
	for name, c := range map[string]struct {
		key     string // "waits" if it is not given
		options string // {"lease_s":4} if it is not given
		instead func(r *rig, call string, nth int, w http.ResponseWriter) bool
		want    ending
	}{
		"a late report of a lost lease": {want: ending{Output: length},
			instead: func(r *rig, call string, _ int, w http.ResponseWriter) bool {
				defer func() {
					if call == "renew" {
						r.letGo()
					}
				}()
				return call == "renew" && refuse(w, http.StatusConflict, "lease_lost")
			}},
		"a proxy refuses renewals": {want: ending{Output: length},
			instead: func(r *rig, call string, nth int, w http.ResponseWriter) bool {
				if call == "renew" && nth == 2 {
					r.letGo()
				}
				return call == "renew" && nth == 1 && proxy(w, http.StatusForbidden)
			}},
		"a renewal hangs": {want: ending{Output: length},
			instead: func(r *rig, call string, nth int, w http.ResponseWriter) bool {
				if call == "renew" && nth == 1 {
					<-r.over
				} else if call == "renew" {
					r.letGo()
				}
				return false
			}},
		"a proxy refuses a large end": {key: "quick", want: ending{Outcome: "failed", Code: "bad_result"},
			instead: func(_ *rig, call string, nth int, w http.ResponseWriter) bool {
				return call == "finish" && nth == 1 && proxy(w, http.StatusRequestEntityTooLarge)
			}},
		"a proxy without its server": {key: "quick", want: ending{Output: length},
			instead: func(_ *rig, call string, nth int, w http.ResponseWriter) bool {
				return (call == "finish" && nth == 1 || call == "claims" && nth == 2) && proxy(w, http.StatusNotFound)
			}},
		"a handler that obeys": {key: "obeys", options: `{"lease_s":60,"concurrency":2,"grace_s":0}`,
			want: ending{Outcome: "released"},
			instead: func(r *rig, call string, nth int, w http.ResponseWriter) bool {
				if call == "claims" && nth == 2 {
					_, _ = io.WriteString(w, `{"leases":[],"drain":true}`)
					return true
				}
				return false
			}},
		"a snooze with a bound":   {key: "snoozes", want: ending{Outcome: "snoozed", Code: "http_503", AtMost: 3}},
		"a result without an end": {key: "nested", want: ending{Outcome: "failed", Code: "bad_result"}},
	} {
		for _, interpreter := range []string{"python3", "node"} {
			t.Run(name+"/"+interpreter, func(t *testing.T) {
				t.Parallel()
				key, options := c.key, c.options
				if key == "" {
					key = "waits"
				}
				if options == "" {
					options = `{"lease_s":4,"concurrency":2,"token":"ldg_x\n"}`
				}
				r := newRig(t, key)
				r.instead = func(call string, nth int, w http.ResponseWriter) bool {
					return c.instead != nil && c.instead(r, call, nth, w)
				}
				out := r.work(t, interpreter, options, false)
				if diff := cmp.Diff([]ending{c.want}, r.endings); diff != "" {
					t.Errorf("%s\n%s", diff, out)
				}
				want := `{"kind":"page","key":"д","payload":{"name":"ü` + "\u2028" + `","half":"\ud800 😀"}}` + "\n"
				if diff := cmp.Diff(want, r.added); diff != "" {
					t.Errorf("added: %s", diff)
				}
			})
		}
	}
}

// TestPoison: an end that a proxy refuses holds no others back.
func TestPoison(t *testing.T) {
	for _, interpreter := range []string{"python3", "node"} {
		t.Run(interpreter, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "quick", "waits")
			r.poison = "1.1.x"
			out := r.work(t, interpreter, `{"lease_s":4,"concurrency":2}`, false)
			if len(r.endings) != 2 {
				t.Errorf("%+v\n%s", r.endings, out)
			}
		})
	}
}

// TestWorkersFail: a worker that cannot work ends with an error.
func TestWorkersFail(t *testing.T) {
	status := func(status int) func(string, int, http.ResponseWriter) bool {
		return func(call string, _ int, w http.ResponseWriter) bool {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			return call == "claims" && proxy(w, status)
		}
	}
	for name, c := range map[string]struct {
		options string
		instead func(call string, nth int, w http.ResponseWriter) bool
		want    string
	}{
		"no API":         {`{}`, status(http.StatusNotFound), "http_404"},
		"a redirect":     {`{}`, status(http.StatusMovedPermanently), "http_301"},
		"no handlers":    {`{"concurrency":0}`, nil, "concurrency 1 or more"},
		"less ahead":     {`{"ahead":-1}`, nil, "ahead 0 or more"},
		"a broken token": {`{"token":"ldg_secret\nx"}`, nil, "the token has a space"},
	} {
		for _, interpreter := range []string{"python3", "node"} {
			t.Run(name+"/"+interpreter, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.instead = c.instead
				if out := r.work(t, interpreter, c.options, true); !strings.Contains(out, c.want) ||
					strings.Contains(out, "ldg_secret") {
					t.Errorf("want %s\n%s", c.want, out)
				}
			})
		}
	}
}

// TestPythonWorkerFails: run raises what ends a thread of the worker, and tells of ends that are not recorded.
func TestPythonWorkerFails(t *testing.T) {
	r := newRig(t, "quick")
	r.instead = func(call string, nth int, w http.ResponseWriter) bool {
		if call == "finish" {
			<-r.over
		} else if call == "claims" && nth == 2 {
			_, _ = io.WriteString(w, `{"leases":[],"drain":true}`)
		}
		return call == "finish" || call == "claims" && nth == 2
	}
	if out := r.work(t, "python3", `{"lease_s":3,"concurrency":2}`, true); !strings.Contains(out,
		"the ends of 1 items are not recorded") {
		t.Error(out)
	}
	check(t, "python3", "-B", "-c", `import sys
sys.path.insert(0, sys.argv[1])
import ledgerd
class Broken(ledgerd.Client):
    def _call(self, *args, **given):
        raise KeyError("broken")
try:
    ledgerd.Worker(Broken("http://127.0.0.1:1"), "page", print).run()
except KeyError as error:
    assert "broken" in str(error)
else:
    raise AssertionError("it ended well")
`, clients+"python")
}

// TestPythonThreadFails: run raises what ends a thread that works an item.
func TestPythonThreadFails(t *testing.T) {
	r := newRig(t, "quick")
	r.instead = func(call string, _ int, w http.ResponseWriter) bool {
		if call == "start" {
			_, _ = io.WriteString(w, "{}")
		}
		return call == "start"
	}
	if out := r.work(t, "python3", `{"lease_s":3,"ahead":1}`, true); !strings.Contains(out, "KeyError: 'answers'") {
		t.Error(out)
	}
}

// TestEvents: a slow reader of events holds the stream back, and its signal ends a pause.
func TestEvents(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "node", "testdata/events.mjs").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	must.OK(t, ctx.Err())
}
