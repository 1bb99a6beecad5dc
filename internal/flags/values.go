package flags

import (
	"crypto/x509"
	"net"
	"os"
)

func CheckAddress(flag, address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return Errorf("%s: %q is not HOST:PORT", flag, address)
	}
	if _, err := net.ResolveTCPAddr("tcp", address); err != nil {
		return Errorf("%s: %w", flag, err)
	}
	return nil
}

func ReadAuthorities(flag, file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, Errorf("%s: %w", flag, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, Errorf("%s: %s holds no certificate in PEM form", flag, file)
	}
	return pool, nil
}
