// Package ui has the pages of a ledger. They show which items wait and which fail, why, and the acts that may help.
//
// The pages are a client of the HTTP API and nothing more. A page asks the API with the token of its reader and makes
// HTML of the answers; an act is sent to the API. So the pages show and change only what a program with the same token
// could, and they decide nothing about items. The API may be in this process or elsewhere.
//
// A page needs only links and forms. The script keeps a page up to date and adds keys; all pages work without it. One
// file has one page, with its template of the same name; the table of pages is in ui.go.
package ui
