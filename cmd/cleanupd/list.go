package main

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"
)

// longest is how much a list may show: a page of the API.
const longest = 1000

// limitFlag adds the flag that says how much a list shows.
func limitFlag(f *pflag.FlagSet, limit *int32) {
	f.Int32Var(limit, "limit", 50, fmt.Sprintf("how many to list at most, the newest ones, 1 to %d", longest))
}

// checkLimit refuses what a page can not be.
func checkLimit(limit int32) error {
	if limit < 1 || limit > longest {
		return usagef("--limit must be 1 to %d, not %d", longest, limit)
	}
	return nil
}

// tellOfMore says that a list has another page.
func tellOfMore(w io.Writer, nextPage string) {
	if nextPage != "" {
		fmt.Fprintf(w, "There are more: --limit lists up to %d, the API all of them.\n", longest)
	}
}
