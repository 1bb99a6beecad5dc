package access

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

type revocations []*x509.RevocationList

// parseRevocations reads PEM. It refuses lists that cover only some certificates of their issuer, or only changes,
// which such lists state in critical extensions.
func parseRevocations(contents ...[]byte) (lists revocations, err error) {
	for block, rest := pem.Decode(contents[0]); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "X509 CRL" {
			return nil, fmt.Errorf("there is a %s in it, which is no X509 CRL", block.Type)
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, err
		}
		extensions := slices.Clone(list.Extensions)
		for _, entry := range list.RevokedCertificateEntries {
			extensions = append(extensions, entry.Extensions...)
		}
		if i := slices.IndexFunc(extensions, func(e pkix.Extension) bool { return e.Critical }); i >= 0 {
			return nil, fmt.Errorf("a CRL of %s has the critical extension %s: only complete ones are understood",
				list.Issuer, extensions[i].Id)
		}
		lists = append(lists, list)
	}
	if lists == nil {
		return nil, errors.New("there is no X509 CRL in PEM form in it")
	}
	return lists, nil
}

// check fails unless the lists say that no certificate of a verified chain is revoked. It does not check the last
// certificate, which is the trusted authority.
func (l revocations) check(chain []*x509.Certificate) error {
	for i, issuer := range chain[1:] {
		if err := l.checkOne(chain[i], issuer, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

func (l revocations) checkOne(cert, issuer *x509.Certificate, now time.Time) error {
	known := false
	for _, list := range l {
		if list.CheckSignatureFrom(issuer) != nil {
			continue
		}
		// An expired list still tells which certificates were revoked.
		if slices.ContainsFunc(
			list.RevokedCertificateEntries,
			func(e x509.RevocationListEntry) bool { return e.SerialNumber.Cmp(cert.SerialNumber) == 0 },
		) {
			return errors.New("it is revoked")
		}
		known = known ||
			(list.ThisUpdate.Before(now.Add(skew)) &&
				(list.NextUpdate.IsZero() || list.NextUpdate.After(now.Add(-skew))))
	}
	if !known {
		return fmt.Errorf("there is no CRL of %s in force", issuer.Subject)
	}
	return nil
}
