// Package ui has the pages of a ledger: what waits, what fails and why, and what can be done about it.
//
// The pages are a client of the HTTP API and nothing more. A page asks the API with the token of its reader and makes
// HTML of the answers; an act is sent to the API. So the pages show and change only what a program with the same token
// could, and they decide nothing about items. The API may be in this process or elsewhere.
//
// Links and forms are all that a page needs. The script keeps a page up to date and adds keys; without it everything
// works. One file has one page, with its template of the same name; the table of pages is in ui.go.
package ui
