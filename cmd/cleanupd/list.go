package main

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/service"
)

// limitFlag adds the flag that limits how many entries are listed, most at most; which says which ones those are.
func limitFlag(f *pflag.FlagSet, limit *int32, which string, most int32) {
	f.Int32Var(limit, "limit", service.DefaultPageSize, fmt.Sprintf("how many %s to list at most, 1 to %d", which, most))
}

// checkLimit refuses a limit that is out of range.
func checkLimit(limit, most int32) error {
	if limit < 1 || limit > most {
		return usagef("--limit must be 1 to %d, not %d", most, limit)
	}
	return nil
}

// tellOfMore prints that a list has another page, if it has.
func tellOfMore(w io.Writer, nextPage string, most int32) {
	if nextPage != "" {
		fmt.Fprintf(w, "There are more: --limit lists up to %d, the API all of them.\n", most)
	}
}
