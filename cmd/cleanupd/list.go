package main

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/service"
)

// limitFlag adds the flag that limits how many entries are listed; which says which ones those are.
func limitFlag(f *pflag.FlagSet, limit *int32, which string) {
	f.Int32Var(limit, "limit", service.DefaultPageSize, fmt.Sprintf("how many %s to list at most, 1 to %d", which, service.MaxPageSize))
}

// checkLimit refuses a limit that is out of range.
func checkLimit(limit int32) error {
	if limit < 1 || limit > service.MaxPageSize {
		return usagef("--limit must be 1 to %d, not %d", service.MaxPageSize, limit)
	}
	return nil
}

// tellOfMore prints that a list has another page, if it has.
func tellOfMore(w io.Writer, nextPage string) {
	if nextPage != "" {
		fmt.Fprintf(w, "There are more: --limit lists up to %d, the API all of them.\n", service.MaxPageSize)
	}
}
