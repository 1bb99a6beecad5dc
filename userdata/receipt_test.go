package userdata_test

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cleanupd/cleanupd/internal/pagetoken"
	"github.com/cleanupd/cleanupd/userdata"
)

// A verification finds data that is left, or was added since, and its result is stored with the receipt.
func TestVerify(t *testing.T) { onBoth(t, testVerify) }

func testVerify(t *testing.T, on engine) {
	f := bareFormsOn(t, on)
	f.db.Do(
		`INSERT INTO tb_process_instance VALUES (1, 'one', 2), (2, 'two', 2), (3, 'three', 2); INSERT INTO tb_task
			VALUES (11, 1, 'P0', 1), (12, 1, 'P0', 0), (13, 1, 'P1', 2);
		INSERT INTO tb_102 VALUES (3, 'joanna', 1)`,
	)
	query := userdata.Query{UserID: "ann", Variables: allVariables}
	id, err := f.Start(t.Context(), userdata.Request{Query: &query})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Verify(t.Context(), id, &query); !errors.Is(err, userdata.ErrUnfinished) {
		t.Errorf("in progress: %v", err)
	}
	f.work()
	if _, receipt := f.watch(id); !receipt.Succeeded {
		t.Fatalf("%+v", receipt)
	}
	r, err := f.Verify(t.Context(), id, &query)
	if err != nil || !r.Verification.Clean || !slices.Equal(r.Verification.Possible, []int64{3}) ||
		len(r.Verification.NotSearched) != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	f.db.Do("INSERT INTO tb_task VALUES (14, 1, 'P0', 2), (15, 1, 'P0', 0), (12, 1, 'P1', 0)")
	r, err = f.Verify(t.Context(), id, &query)
	if err != nil || r.Verification.Clean || !slices.Equal(r.Verification.Instances, []int64{2}) ||
		!slices.Equal(r.Verification.Tasks, []int64{12, 15}) {
		t.Errorf("%+v %v", r.Verification, err)
	}
	if again, err := f.Receipt(t.Context(), id); err != nil || again.Verification == nil || again.Verification.Clean ||
		!again.Succeeded {
		t.Errorf("%+v %v", again, err)
	}
	for name, q := range map[string]*userdata.Query{"no user": nil, "another user": {UserID: "joanna"}} {
		if _, err := f.Verify(t.Context(), id, q); !errors.Is(err, userdata.ErrNotUser) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// By ids.
	_, byID := f.erase(userdata.Request{Instances: []int64{2}, Tasks: []int64{12, 99}})
	if r, err := f.Verify(t.Context(), byID.ID, nil); err != nil || !r.Verification.Clean {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := f.Verify(t.Context(), byID.ID, &query); !errors.Is(err, userdata.ErrNotUser) {
		t.Errorf("%v", err)
	}
	f.db.Do("INSERT INTO tb_assignment VALUES (1, 77, 1, 2)")
	if r, err := f.Verify(t.Context(), byID.ID, nil); err != nil ||
		!slices.Equal(r.Verification.Instances, []int64{2}) {
		t.Errorf("%+v %v", r.Verification, err)
	}
	for _, none := range []string{"", "x", "01a20895-0d6e-7d3c-8d7e-5a4fb3a0c111"} {
		if _, err := f.Receipt(t.Context(), none); !errors.Is(err, userdata.ErrNoReceipt) {
			t.Errorf("%q: %v", none, err)
		}
	}
}

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
