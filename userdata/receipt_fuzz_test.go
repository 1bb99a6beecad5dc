package userdata_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pagetoken"
)

// A page token that ListReceipts did not return is refused.
func FuzzReceiptsToken(f *testing.F) {
	const id = "01a1fde2-f3f9-7404-bf12-c82939b07280"
	for _, plain := range []string{
		"",
		"x",
		id,
		strings.ToUpper(id),
		"urn:uuid:" + id,
		strings.Repeat("x", 36),
		"{" + id[:34] + "}",
		id[:35] + "\x00",
	} {
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(`"` + plain + `"`)))
		f.Add(base64.URLEncoding.EncodeToString([]byte(`"`+plain+`"`)) + "\n")
	}
	forms := newForms(f, 1, 1, false)
	f.Fuzz(func(t *testing.T, token string) {
		_, _, err := forms.Receipts(t.Context(), 1, token)
		if err != nil && !errors.Is(err, pagetoken.ErrInvalid) {
			t.Errorf("%q: %v", token, err)
		}
		if id, decoded := base64.RawURLEncoding.DecodeString(token); err == nil &&
			(decoded != nil || base64.RawURLEncoding.EncodeToString(id) != token) {
			t.Errorf("%q is taken for a token", token)
		}
	})
}
