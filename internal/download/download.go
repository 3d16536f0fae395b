// Package download gets lists and plugins from URLs. A URL may hold a password or a key, so no error shows it whole.
package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/ledgerd/ledgerd/sdk/redact"
)

// Get returns the body of the answer to a GET of an http or https URL. A status other than 200 is an error. Errors name
// the URL without its secrets.
func Get(ctx context.Context, address string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, unreachable(address, err)
	}
	req.Header.Set("User-Agent", "ledgerd")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, unreachable(address, err)
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("%s: %s", redact.URL(address), res.Status)
	}
	return res.Body, nil
}

// unreachable is an error of package net/http with the URL redacted: net/http quotes the whole URL.
func unreachable(address string, err error) error {
	if quoting, ok := errors.AsType[*url.Error](err); ok {
		err = quoting.Err
	}
	return fmt.Errorf("%s: %w", redact.URL(address), err)
}
