package rpc

import (
	"fmt"
	"io"
	"math"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/service"
)

func AddLimitFlag(f *pflag.FlagSet, limit *int32) {
	f.Int32Var(limit, "limit", service.DefaultPageSize, "how many of the newest to list at most, 1 or more")
}

type listResponse interface {
	proto.Message
	GetNextPageToken() string
}

// List merges pages of at most pageSize entries, up to limit entries. fetch also returns how many entries the page
// has.
func List[M listResponse](
	limit, pageSize int32, fetch func(size int32, token string) (page M, entries int, err error),
) (all M, err error) {
	if limit < 1 {
		return all, flags.Errorf("--limit must be 1 or more, not %d", limit)
	}
	all, fetched, err := fetch(min(limit, pageSize), "")
	for err == nil && all.GetNextPageToken() != "" && int32(fetched) < limit {
		page, entries, fetchErr := fetch(min(limit-int32(fetched), pageSize), all.GetNextPageToken())
		if err = fetchErr; err == nil {
			next := all.ProtoReflect().Descriptor().Fields().ByName("next_page_token")
			all.ProtoReflect().Clear(next)
			proto.Merge(all, page)
			fetched += entries
		}
	}
	return all, err
}

func ListAll[M listResponse](fetch func(token string) (M, error)) (all M, err error) {
	return List(math.MaxInt32, math.MaxInt32, func(_ int32, token string) (page M, entries int, err error) {
		page, err = fetch(token)
		return page, 0, err // without a limit they need not be counted
	})
}

func PrintMore(w io.Writer, list listResponse) {
	if list.GetNextPageToken() != "" {
		fmt.Fprintln(w, "There are more entries: a higher --limit lists them.")
	}
}
