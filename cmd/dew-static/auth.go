package main

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/bcrypt"
)

// check reports whether a password matches a hash.
type check func(password string) bool

// parseAuth parses users and hashes in the format of htpasswd.
func parseAuth(text string) (map[string]check, error) {
	users := map[string]check{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		user, hash, ok := strings.Cut(line, ":")
		if !ok || user == "" {
			return nil, fmt.Errorf("%s line %d: must have the form USER:HASH, as htpasswd writes it", authName, n)
		}
		// More fields are allowed and ignored.
		hash, _, _ = strings.Cut(hash, ":")
		c, err := parseHash(hash)
		if err != nil {
			return nil, fmt.Errorf("%s line %d: %w", authName, n, err)
		}
		users[user] = c
	}
	// The file restricts the access, so a file without users must not allow all
	// clients.
	if len(users) == 0 && strings.TrimSpace(text) != "" {
		return nil, fmt.Errorf("%s contains no user: add a user with htpasswd, or remove the file", authName)
	}
	return users, nil
}

func parseHash(hash string) (check, error) {
	switch {
	case strings.HasPrefix(hash, "$2"):
		if _, err := bcrypt.Cost([]byte(hash)); err != nil {
			return nil, errors.New("the hash is not a valid bcrypt hash")
		}
		return func(p string) bool { return bcrypt.CompareHashAndPassword([]byte(hash), []byte(p)) == nil }, nil
	case strings.HasPrefix(hash, "{SHA}"):
		return func(p string) bool {
			sum := sha1.Sum([]byte(p))
			return same(hash, "{SHA}"+base64.StdEncoding.EncodeToString(sum[:]))
		}, nil
	case strings.HasPrefix(hash, "{PLAIN}"):
		return func(p string) bool { return same(hash, "{PLAIN}"+p) }, nil
	case strings.HasPrefix(hash, apr1):
		salt, _, ok := strings.Cut(hash[len(apr1):], "$")
		if !ok || salt == "" || len(salt) > 8 {
			return nil, errors.New("the hash is not a valid apr1 hash")
		}
		return func(p string) bool { return same(hash, apr1Hash(p, salt)) }, nil
	}
	return nil, errors.New("the hash must be from htpasswd -B, -m or -s, or start with {PLAIN}")
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// apr1 is the prefix of the hashes of htpasswd -m.
const apr1 = "$apr1$"

// apr1Hash returns Apache's variant of an MD5 hash.
func apr1Hash(password, salt string) string {
	p := []byte(password)
	inner := md5.Sum([]byte(password + salt + password))
	b := bytes.NewBufferString(password + apr1 + salt)
	for i := len(p); i > 0; i -= md5.Size {
		b.Write(inner[:min(i, md5.Size)])
	}
	for i := len(p); i > 0; i >>= 1 {
		if i&1 == 1 {
			b.WriteByte(0)
		} else {
			b.WriteByte(p[0])
		}
	}
	sum := md5.Sum(b.Bytes())
	for i := range 1000 {
		sum = apr1Round(i, p, salt, sum)
	}
	return apr1 + salt + "$" + apr1Text(sum)
}

func apr1Round(i int, p []byte, salt string, sum [md5.Size]byte) [md5.Size]byte {
	var b bytes.Buffer
	first, last := p, sum[:]
	if i%2 == 0 {
		first, last = last, first
	}
	b.Write(first)
	if i%3 != 0 {
		b.WriteString(salt)
	}
	if i%7 != 0 {
		b.Write(p)
	}
	b.Write(last)
	return md5.Sum(b.Bytes())
}

// apr1Text encodes a hash in the order and the alphabet of crypt.
func apr1Text(sum [md5.Size]byte) string {
	const letters = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	out := make([]byte, 0, 22)
	add := func(v uint32, n int) {
		for ; n > 0; n-- {
			out = append(out, letters[v&0x3f])
			v >>= 6
		}
	}
	for _, t := range [][3]int{{0, 6, 12}, {1, 7, 13}, {2, 8, 14}, {3, 9, 15}, {4, 10, 5}} {
		add(uint32(sum[t[0]])<<16|uint32(sum[t[1]])<<8|uint32(sum[t[2]]), 4)
	}
	add(uint32(sum[11]), 2)
	return string(out)
}
