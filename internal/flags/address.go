package flags

import (
	"net"
)

// checkAddress refuses a malformed address.
func CheckAddress(flag, address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return Errorf("%s: %q is no HOST:PORT", flag, address)
	}
	if _, err := net.ResolveTCPAddr("tcp", address); err != nil {
		return Errorf("%s: %w", flag, err)
	}
	return nil
}
