package main

import (
	"path/filepath"
	"strings"
)

// Formats of --from.
const (
	formatLines = "lines" // one INPUT per line; # begins a comment
	formatCSV   = "csv"   // a header, then one item per row
	formatJSONL = "jsonl" // one JSON object per line
	formatSQL   = "sql"   // one SELECT
)

// list is --from, by its format; at most one is not "".
func (s *sourceFlags) list() (lines, csv, jsonl, sql string) {
	format := s.format.value
	if format == "" {
		switch strings.ToLower(filepath.Ext(s.from)) {
		case ".csv":
			format = formatCSV
		case ".jsonl", ".ndjson":
			format = formatJSONL
		case ".sql":
			format = formatSQL
		}
	}
	switch format {
	case formatCSV:
		csv = s.from
	case formatJSONL:
		jsonl = s.from
	case formatSQL:
		sql = s.from
	default:
		lines = s.from
	}
	return lines, csv, jsonl, sql
}
