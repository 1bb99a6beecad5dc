package flags

import (
	"crypto/x509"
	"os"
)

// readAuthorities reads the certificate authorities in the file of a flag.
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
