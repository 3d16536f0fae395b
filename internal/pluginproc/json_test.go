//go:build unix

package pluginproc_test

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

func TestJSON(t *testing.T) {
	tests := []struct {
		message proto.Message
		want    string
	}{
		{&wire.ConfigureRequest{Config: []byte("{ \"a\": \"<y>\" }"), ProgressMs: -1},
			`{"config":{"a":"<y>"},"progress_ms":-1}`},
		{&wire.HostMessage{
			Items:   []*wire.Item{{Id: 1, Payload: []byte("no JSON"), LockId: []byte{0xff, 0}}, {Id: 2}},
			Cancels: []*wire.Cancel{{Id: 1, Reason: 99}, {Reason: wire.Cancel_REASON_STOPPING}},
		}, `{"items":[{"id":1,"payload":"no JSON","lock_id":{"base64":"/wA="}},{"id":2}],"cancels":[{"id":1,"reason":99},{"reason":"REASON_STOPPING"}]}`},
		{&wire.PluginMessage{}, `{}`},
	}
	for _, test := range tests {
		got := pluginproc.JSON(test.message)
		if string(got) != test.want {
			t.Errorf("%s\nwant\n%s", got, test.want)
		}
	}
}

// A message with any content is JSON.
func TestJSONIsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &wire.Result{
			Id:      rapid.Int64().Draw(t, "id"),
			LockId:  rapid.SliceOf(rapid.Byte()).Draw(t, "lock"),
			Error:   rapid.String().Draw(t, "error"),
			Outcome: wire.Result_Outcome(rapid.Int32().Draw(t, "outcome")),
			Output:  []byte(rapid.StringMatching(`[{}"0-9a\[\],: ]*`).Draw(t, "output")),
		}
		if text := pluginproc.JSON(m); !json.Valid(text) {
			t.Fatalf("%s", text)
		}
	})
}
