package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strings"
)

// token has only the hash of a token, since the token itself is not stored.
type token struct {
	role Role
	name string
	hash [sha256.Size]byte
}

// parseTokens reads a token file: one line "ROLE NAME SHA256" per token, empty lines, and comments that begin with #.
func parseTokens(contents ...[]byte) (tokens []token, err error) {
	seen := map[[sha256.Size]byte]int{}
	number := 0
	for line := range strings.Lines(string(contents[0])) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 3 { // the error must not quote the line, which may be a token
			return nil, fmt.Errorf("line %d: is not ROLE NAME SHA256", number)
		}
		t := token{name: fields[1]}
		if t.role, err = ParseRole(fields[0]); err != nil {
			return nil, fmt.Errorf("line %d: does not begin with viewer, operator or admin", number)
		}
		if n, err := hex.Decode(
			t.hash[:], []byte(fields[2])[:min(len(fields[2]), 2*sha256.Size)],
		); err != nil || n != sha256.Size ||
			len(fields[2]) != 2*sha256.Size {
			return nil, fmt.Errorf("line %d: does not end with a SHA-256 of 64 hexadecimal digits", number)
		}
		if first := seen[t.hash]; first > 0 {
			return nil, fmt.Errorf("line %d: has the same token as line %d", number, first)
		}
		seen[t.hash] = number
		tokens = append(tokens, t)
	}
	return tokens, nil
}

// find compares all tokens in constant time, so that timing does not reveal which one matched.
func find(tokens []token, secret string) (found token, ok bool) {
	hash := sha256.Sum256([]byte(secret))
	for _, t := range tokens {
		if subtle.ConstantTimeCompare(hash[:], t.hash[:]) == 1 {
			found, ok = t, true
		}
	}
	return found, ok
}
