package rpc

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/service"
)

// limitFlag adds the flag that limits how many entries are listed.
func AddLimitFlag(f *pflag.FlagSet, limit *int32) {
	f.Int32Var(limit, "limit", service.DefaultPageSize, "how many of the newest to list at most, 1 or more")
}

// listing is an answer with a page of a list.
type listing interface {
	proto.Message
	GetNextPageToken() string
}

// list returns the first entries, up to limit, of as many pages as that takes; ask asks for a page, of most entries at
// most, and says how many it has.
func List[M listing](
	limit, most int32,
	ask func(size int32, token string) (page M, entries int, err error),
) (all M, err error) {
	if limit < 1 {
		return all, flags.Errorf("--limit must be 1 or more, not %d", limit)
	}
	all, had, err := ask(min(limit, most), "")
	for err == nil && all.GetNextPageToken() != "" && int32(had) < limit {
		page, entries, failed := ask(min(limit-int32(had), most), all.GetNextPageToken())
		if err = failed; err == nil {
			next := all.ProtoReflect().Descriptor().Fields().ByName("next_page_token")
			all.ProtoReflect().Clear(next)
			proto.Merge(all, page)
			had += entries
		}
	}
	return all, err
}

// tellOfMore prints that a list has more entries, if it has.
func PrintMore(w io.Writer, of listing) {
	if of.GetNextPageToken() != "" {
		fmt.Fprintln(w, "There are more: --limit says how many are listed.")
	}
}
