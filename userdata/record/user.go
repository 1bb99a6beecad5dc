package record

import (
	"crypto/rand"
	"encoding/hex"
	"sync"

	"golang.org/x/crypto/argon2"
)

// The salt is in hexadecimal.
func NewSalt() string {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	return hex.EncodeToString(salt)
}

// Locked while a user id is hashed, which takes 64 MiB of memory.
var hashing sync.Mutex

// A guess can be compared with the hash, but that is expensive.
func HashUser(user, salt string) (string, error) {
	raw, err := hex.DecodeString(salt)
	if err != nil {
		return "", err
	}
	hashing.Lock()
	defer hashing.Unlock()
	return hex.EncodeToString(argon2.IDKey([]byte(user), raw, 1, 64<<10, 4, 32)), nil
}

func IsUser(user, hash, salt string) (bool, error) {
	hashed, err := HashUser(user, salt)
	return err == nil && hashed == hash, err
}
