package payload

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckText(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":"\ud83d\ude00"}`:        "",
		`{"a":"\uD83D\uDE00\n\\ud8"}`: "",
		`["\\ud800","\\\\udfff"]`:     "",
		`"\u00e9 \" \/ \ufffd"`:       "",
		`{}`:                          "",
		`{"a":"\ud800"}`:              `\ud800 at byte 7`,
		`{"a":"\udfffa"}`:             `\udfff at byte 7`,
		`{"\uDBFF":1}`:                `\uDBFF at byte 3`,
		`"\\\ud800"`:                  `\ud800 at byte 4`,
		`"\ud83d\ud83d\ude00"`:        `\ud83d at byte 2`,
		`"\ude00\ud83d"`:              `\ude00 at byte 2`,
		`"\ud83dx\ude00"`:             `\ud83d at byte 2`,
	} {
		err := CheckText([]byte(text))
		if want == "" && err != nil || want != "" && (!errors.Is(err, errHalfLetter) ||
			!strings.HasSuffix(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
