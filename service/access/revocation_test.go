package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cleanupd/cleanupd/internal/testca"
)

// A certificate is refused as soon as a list revokes it. It is also refused if no list of its authority is in force.
func TestRevokedCertificates(t *testing.T) {
	ca, other := testca.New(t), testca.New(t)
	good, bad := ca.Client("good"), ca.Client("bad")
	later, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	join := func(files ...string) string {
		var all []byte
		for _, name := range files {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, content...)
		}
		return string(all)
	}
	path := write(t, "", join(ca.CRL(later)))
	guard, err := Open(t.Context(), Config{ClientCA: ca.File(), ClientCRL: path, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ lists, good, bad string }{
		{"", "", ""},
		{join(ca.CRL(later, bad)), "", "the certificate is revoked"},
		{join(other.CRL(later), ca.CRL(later, bad)), "", "the certificate is revoked"},
		{join(ca.CRL(later), ca.CRL(past, bad)), "", "the certificate is revoked"}, // a revocation is never taken back
		{join(ca.CRL(past, bad)), "no CRL of CN=authority in force", "the certificate is revoked"},
		// it begins tomorrow
		{join(ca.CRL(time.Now().Add(48 * time.Hour))), "no CRL of CN=authority in force", "no CRL"},
		{join(other.CRL(later, good, bad)), "no CRL of CN=authority in force", "no CRL"},
		{"nonsense", "no CRL of CN=authority in force", "no CRL"}, // the previous lists stay in force
		{join(ca.CRL(later)), "", ""},
	} {
		if test.lists != "" {
			write(t, path, test.lists)
		}
		for cert, says := range map[*tls.Certificate]string{&good: test.good, &bad: test.bad} {
			guard.certificates.revocations.loaded = time.Time{} // a second has passed
			_, err := guard.Identify(t.Context(), "host", []*x509.Certificate{cert.Leaf}, nil)
			if (says == "" && err != nil) ||
				(says != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), says))) {
				t.Errorf("%s: %v, want %q", cert.Leaf.Subject, err, says)
			}
		}
	}
}

// A list for only some certificates is rejected, since it would let the others pass.
func TestPartialRevocationLists(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issuer := &x509.Certificate{
		Subject:      pkix.Name{CommonName: "x"},
		SubjectKeyId: []byte{1},
		KeyUsage:     x509.KeyUsageCRLSign,
	}
	partial := []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 28}, Critical: true, Value: []byte{0x30, 0}}}
	for name, template := range map[string]*x509.RevocationList{
		"a part": {Number: big.NewInt(1), ExtraExtensions: partial},
		"another's": {
			Number: big.NewInt(1),
			RevokedCertificateEntries: []x509.RevocationListEntry{{
				SerialNumber:    big.NewInt(7),
				RevocationTime:  time.Now(),
				ExtraExtensions: partial,
			}},
		},
		"all of it": {Number: big.NewInt(1)},
	} {
		template.ThisUpdate, template.NextUpdate = time.Now(), time.Now().Add(time.Hour)
		der, err := x509.CreateRevocationList(rand.Reader, template, issuer, key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseRevocations(
			pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}),
		); (err == nil) != (name == "all of it") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
