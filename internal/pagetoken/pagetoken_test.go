package pagetoken_test

import (
	"encoding/base64"
	"errors"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pagetoken"
)

type key struct {
	Name string
	ID   int64
}

func TestTokensKeepTheirKeys(t *testing.T) {
	t.Parallel()
	for _, want := range []key{{"a", 1}, {"", -1}, {"\x00ü", 0}, {"x", 1 << 62}} {
		if got, err := pagetoken.Parse[key](pagetoken.Format(want)); err != nil || got != want {
			t.Errorf("%+v came back as %+v, %v", want, got, err)
		}
	}
	if got, err := pagetoken.Parse[key](""); err != nil || got != (key{}) {
		t.Errorf("an empty token is %+v, %v", got, err)
	}
}

func TestOtherTextsAreNoTokens(t *testing.T) {
	t.Parallel()
	encode := base64.RawURLEncoding.EncodeToString
	for _, token := range []string{
		"x", "!", "MA", pagetoken.Format(key{}), pagetoken.Format(key{"a", 1}) + "=",
		encode([]byte(`{"Name":"a", "ID":1}`)), encode([]byte(`{"Name":"a","ID":1}{}`)), encode([]byte(`{"ID":1}`)),
		encode([]byte(`{"Name":"\xff","ID":1}`)), encode([]byte(`{"Name":"a","ID":9223372036854775808}`)),
	} {
		if got, err := pagetoken.Parse[key](token); !errors.Is(err, pagetoken.ErrInvalid) {
			t.Errorf("%q is the token of %+v, %v", token, got, err)
		}
	}
	for _, number := range []int64{0, -1} {
		if got, err := pagetoken.ParseNumber(pagetoken.Format(number)); !errors.Is(err, pagetoken.ErrInvalid) {
			t.Errorf("the token of %d is that of %d, %v", number, got, err)
		}
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	id := func(n int64) int64 { return n }
	if page, next := pagetoken.Cut([]int64{1, 2}, 2, id); len(page) != 2 || next != "" {
		t.Errorf("the last page: %v, %q", page, next)
	}
	page, next := pagetoken.Cut([]int64{1, 2, 3}, 2, id)
	if after, err := pagetoken.ParseNumber(next); len(page) != 2 || after != 2 || err != nil {
		t.Errorf("a page of two: %v, next after %d, %v", page, after, err)
	}
}
