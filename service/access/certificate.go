package access

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

type certificates struct {
	authorities *file[*x509.CertPool]
	revocations *file[revocations] // nil if revocation is not checked
	roles       map[string]Role    // by name
}

func newCertificates(c Config) (*certificates, error) {
	out := &certificates{roles: map[string]Role{}}
	if len(c.ClientRoles) == 0 {
		out.roles = map[string]Role{Viewer.String(): Viewer, Operator.String(): Operator, Admin.String(): Admin}
	}
	for _, entry := range c.ClientRoles {
		at := strings.LastIndex(entry, "=")
		if at <= 0 {
			return nil, fmt.Errorf("%q is not NAME=ROLE", entry)
		}
		role, err := ParseRole(entry[at+1:])
		if err != nil {
			return nil, err
		}
		if out.roles[entry[:at]] != Nobody {
			return nil, fmt.Errorf("%s has two roles", entry[:at])
		}
		out.roles[entry[:at]] = role
	}
	var err error
	if out.authorities, err = open(c.Log, parsePool, c.ClientCA); err != nil {
		return nil, err
	}
	if c.ClientCRL != "" {
		out.revocations, err = open(c.Log, parseRevocations, c.ClientCRL)
	}
	return out, err
}

func parsePool(contents ...[]byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(contents[0]) {
		return nil, errors.New("no certificate in PEM form")
	}
	return pool, nil
}

// identify verifies the certificate at every call, so that the current authorities and the current time count. If a
// certificate has several names, the one with the highest role counts.
func (c *certificates) identify(shown []*x509.Certificate) (subject string, role Role, err error) {
	between := x509.NewCertPool()
	for _, cert := range shown[1:] {
		between.AddCert(cert)
	}
	own := shown[0]
	chains, err := own.Verify(x509.VerifyOptions{
		Roots:         c.authorities.get(),
		Intermediates: between,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err == nil && c.revocations != nil {
		lists := c.revocations.get()
		for _, chain := range chains { // one valid chain is enough
			if err = lists.check(chain); err == nil {
				break
			}
		}
	}
	if err != nil {
		return "", Nobody, fmt.Errorf("%w: the client certificate: %w", ErrInvalid, err)
	}
	names := append([]string{own.Subject.CommonName}, own.DNSNames...)
	names = append(names, own.EmailAddresses...)
	for _, ip := range own.IPAddresses {
		names = append(names, ip.String())
	}
	for _, uri := range own.URIs {
		names = append(names, uri.String())
	}
	for _, name := range names {
		if name != "" && (subject == "" || c.roles[name] > role) {
			subject, role = name, c.roles[name]
		}
	}
	return "cert:" + subject, role, nil
}

// ServerTLS reloads the certificate and key files when they change. It only requests a client certificate, and
// leaves it to Identify to verify it. A certificate of an unknown authority is therefore refused by the call, with
// a clear status, and not in the handshake.
func ServerTLS(log *slog.Logger, certificate, key string) (*tls.Config, error) {
	pair, err := open(log, parsePair, certificate, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		ClientAuth:     tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.get(), nil },
	}, nil
}

func parsePair(contents ...[]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	return &pair, err
}

type revocations []*x509.RevocationList

// parseRevocations reads PEM. It refuses lists with critical extensions, because such lists may cover only some
// certificates of their issuer, or only changes.
func parseRevocations(contents ...[]byte) (lists revocations, err error) {
	for block, rest := pem.Decode(contents[0]); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "X509 CRL" {
			return nil, fmt.Errorf("unexpected PEM block %s: want X509 CRL", block.Type)
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
			return nil, fmt.Errorf("a CRL of %s has the critical extension %s: only complete CRLs are supported",
				list.Issuer, extensions[i].Id)
		}
		lists = append(lists, list)
	}
	if lists == nil {
		return nil, errors.New("no X509 CRL in PEM form")
	}
	return lists, nil
}

// check fails unless current lists show that no certificate of a verified chain is revoked. It does not check the last
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
		// An expired list still shows which certificates were revoked.
		if slices.ContainsFunc(
			list.RevokedCertificateEntries,
			func(e x509.RevocationListEntry) bool { return e.SerialNumber.Cmp(cert.SerialNumber) == 0 },
		) {
			return errors.New("the certificate is revoked")
		}
		known = known ||
			(list.ThisUpdate.Before(now.Add(skew)) &&
				(list.NextUpdate.IsZero() || list.NextUpdate.After(now.Add(-skew))))
	}
	if !known {
		return fmt.Errorf("no CRL of %s in force", issuer.Subject)
	}
	return nil
}
