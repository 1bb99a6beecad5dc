// Package testca makes certificates for tests.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

type CA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func New(t testing.TB) *CA {
	t.Helper()
	ca := &CA{t: t}
	ca.cert, ca.key = ca.sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "authority"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	})
	return ca
}

// sign makes a certificate and signs it with the authority's key. The first one is the authority's own certificate.
func (ca *CA) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := ca.cert, ca.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		ca.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert, key
}

func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// Client takes DNS names and IP addresses as alternative names.
func (ca *CA) Client(name string, alternative ...string) tls.Certificate {
	ca.t.Helper()
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, a := range alternative {
		if ip := net.ParseIP(a); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, a)
		}
	}
	return pair(ca.sign(template))
}

func (ca *CA) Server() tls.Certificate {
	ca.t.Helper()
	return pair(ca.sign(&x509.Certificate{
		Subject: pkix.Name{
			CommonName: "server",
		},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}))
}

func pair(cert *x509.Certificate, key *ecdsa.PrivateKey) tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

// File returns the path of a PEM file with the authority's certificate.
func (ca *CA) File() string {
	ca.t.Helper()
	return ca.write("ca.pem", "CERTIFICATE", ca.cert.Raw)
}

// Files returns the paths of PEM files with the certificate and its key.
func (ca *CA) Files(pair tls.Certificate) (cert, key string) {
	ca.t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		ca.t.Fatal(err)
	}
	return ca.write("cert.pem", "CERTIFICATE", pair.Certificate[0]), ca.write("key.pem", "PRIVATE KEY", der)
}

// CRL returns the path of a PEM file with revoked certificates of the authority.
func (ca *CA) CRL(until time.Time, revoked ...tls.Certificate) string {
	ca.t.Helper()
	template := &x509.RevocationList{
		Number:     big.NewInt(time.Now().UnixNano()),
		ThisUpdate: until.Add(-24 * time.Hour),
		NextUpdate: until,
	}
	for _, r := range revoked {
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: r.Leaf.SerialNumber, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, template, ca.cert, ca.key)
	if err != nil {
		ca.t.Fatal(err)
	}
	return ca.write("crl.pem", "X509 CRL", der)
}

func (ca *CA) write(name, kind string, der []byte) string {
	ca.t.Helper()
	path := filepath.Join(ca.t.TempDir(), name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		ca.t.Fatal(err)
	}
	return path
}
