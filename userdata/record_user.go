package userdata

import (
	"crypto/rand"
	"encoding/hex"
	"sync"

	"golang.org/x/crypto/argon2"
)

// NewSalt returns a random salt in hexadecimal.
func newSalt() string {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	return hex.EncodeToString(salt)
}

// hashing is locked while a user id is hashed, since each hash takes 64 MiB of memory.
var hashing sync.Mutex

// HashUser uses a slow hash, so that guessing user ids is expensive.
func hashUser(user, salt string) (string, error) {
	raw, err := hex.DecodeString(salt)
	if err != nil {
		return "", err
	}
	hashing.Lock()
	defer hashing.Unlock()
	return hex.EncodeToString(argon2.IDKey([]byte(user), raw, 1, 64<<10, 4, 32)), nil
}

func isUser(user, hash, salt string) (bool, error) {
	hashed, err := hashUser(user, salt)
	return err == nil && hashed == hash, err
}
