// Package webtest tests the pages of ledgerd in a real browser.
//
// It is a module of its own, so that what drives a browser stays out of the program. Its tests build ledgerd, fill
// ledgers through its commands and start its ledgerd ui; one Chromium looks at the pages. The pages of the menu are read
// from the menu, so a new page is tested without a change here.
//
// The tests need the program chromium, and node_modules here; make test gets both.
package webtest
