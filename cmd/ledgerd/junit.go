package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"strings"
)

// JUnit's XML, as far as the servers that show test results agree on it.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"` // seconds
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string       `xml:"classname,attr"`
		Name    string       `xml:"name,attr"`
		Time    string       `xml:"time,attr"`
		Failure *junitReason `xml:"failure"`
		Skipped *junitReason `xml:"skipped"`
	}
	junitReason struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// writeJUnit writes the results of checks to a file.
func writeJUnit(file, plugin string, rows []checkRow) error {
	suite := junitSuite{Name: "ledgerd plugin check " + plugin, Tests: len(rows), Failures: failedChecks(rows)}
	seconds := func(ms float64) string { return fmt.Sprintf("%.3f", ms/1000) }
	total := 0.0
	for _, row := range rows {
		total += row.MS
		c := junitCase{Class: "ledgerd." + row.Group, Name: row.Check, Time: seconds(row.MS)}
		switch row.Result {
		case checkNot:
			suite.Skipped++
			c.Skipped = &junitReason{Message: row.Error}
		case checkFailed:
			message, _, _ := strings.Cut(row.Error, "\n")
			c.Failure = &junitReason{Message: message, Text: "expected: " + row.Expected + "\nhappened: " + row.Error + "\ndo: " + row.Do + "\n"}
		}
		suite.Cases = append(suite.Cases, c)
	}
	suite.Time = seconds(total)
	text, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte(xml.Header), append(text, '\n')...), 0o644)
}
