package query

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	errBytes = errors.New("is bytes, not text: convert it in the query")
	errText  = errors.New("is not text: not UTF-8, or with a NUL")
)

// CellJSON returns a cell of a row (see [Query.Rows]) as JSON; with text set, any cell becomes a string.
func CellJSON(cell any, text bool) (json.RawMessage, error) {
	switch v := cell.(type) {
	case int64, bool, Decimal:
		if t, err := CellText(v); !text {
			return json.RawMessage(t), err
		}
	case float64:
		if !text && !math.IsInf(v, 0) && !math.IsNaN(v) {
			return json.Marshal(v)
		}
	case Raw:
		if !text {
			return json.RawMessage(v), nil
		}
	}
	t, err := CellText(cell)
	if err != nil {
		return nil, err
	}
	return json.Marshal(t)
}

// CellText returns a cell of a row as text.
func CellText(cell any) (string, error) {
	switch v := cell.(type) {
	case nil:
		return "", nil
	case string:
		if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
			return "", errText
		}
		return v, nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case bool:
		return strconv.FormatBool(v), nil
	case Decimal:
		return string(v), nil
	case Raw:
		return string(v), nil
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return strconv.FormatFloat(v, 'g', -1, 64), nil
		}
		b, err := json.Marshal(v)
		return string(b), err
	}
	return "", errBytes
}
