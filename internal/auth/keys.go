package auth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthml/berth"
)

// Keys is the server's key material. Everything is derived from one secret file, so a home can be
// moved as a whole.
type Keys struct {
	Sign []byte // JWTs and task tokens
	SAS  []byte // blob signatures
	seal cipher.AEAD
	same []byte // numbers used once of what is always sealed to the same text
	term ed25519.PrivateKey
}

// TermProof shows that a server of this home gave out a term: see [berth.WithTermProof].
func (k *Keys) TermProof(term int64) string { return berth.ProveTerm(k.term, term) }

// LoadKeys reads DIR/secret.key, making it on first use.
func LoadKeys(dir string) (*Keys, error) {
	b, err := readOrMake(filepath.Join(dir, "secret.key"), func() (string, error) {
		var raw [32]byte
		if _, err := rand.Read(raw[:]); err != nil {
			return "", err
		}
		return hex.EncodeToString(raw[:]), nil
	})
	if err != nil {
		return nil, err
	}
	root, err := hex.DecodeString(b)
	if err != nil || len(root) != 32 {
		return nil, berth.Errorf(berth.Invalid, "%s is damaged; it must contain 64 hex digits", filepath.Join(dir, "secret.key"))
	}
	k := &Keys{}
	var box, term []byte
	for info, dst := range map[string]*[]byte{"sign": &k.Sign, "sas": &k.SAS, "seal": &box, "same": &k.same, "term": &term} {
		if *dst, err = hkdf.Key(sha256.New, root, nil, "berth "+info, 32); err != nil {
			return nil, err
		}
	}
	k.term = ed25519.NewKeyFromSeed(term)
	block, err := aes.NewCipher(box)
	if err != nil {
		return nil, err
	}
	k.seal, err = cipher.NewGCM(block)
	return k, err
}

// Seal encrypts a secret for the database; bound ties it to where it is kept.
func (k *Keys) Seal(secret []byte, bound string) string {
	nonce := make([]byte, k.seal.NonceSize())
	rand.Read(nonce) // crypto/rand.Read never fails
	return base64.RawStdEncoding.EncodeToString(k.seal.Seal(nonce, nonce, secret, []byte(bound)))
}

// Open is the inverse of Seal.
func (k *Keys) Open(sealed, bound string) ([]byte, error) {
	b, err := base64.RawStdEncoding.DecodeString(sealed)
	if err != nil {
		return nil, berth.Errorf(berth.Internal, "a stored secret is damaged")
	}
	return k.open(b, bound)
}

func (k *Keys) open(b []byte, bound string) ([]byte, error) {
	n := k.seal.NonceSize()
	if len(b) < n {
		return nil, berth.Errorf(berth.Internal, "a stored secret is damaged")
	}
	out, err := k.seal.Open(nil, b[:n], b[n:], []byte(bound))
	if err != nil {
		return nil, berth.Errorf(berth.Internal, "a stored secret cannot be opened with this home's secret.key")
	}
	return out, nil
}

// sealSame is Seal without chance: the same secret for the same place is the same text. Which of
// them are equal is all that it shows.
func (k *Keys) sealSame(secret []byte, bound string) []byte {
	mac := hmac.New(sha256.New, k.same)
	fmt.Fprintf(mac, "%d %s", len(bound), bound)
	mac.Write(secret)
	nonce := mac.Sum(nil)[:k.seal.NonceSize()]
	return k.seal.Seal(nonce[:len(nonce):len(nonce)], nonce, secret, []byte(bound))
}

// readOrMake reads a 0600 file, or makes it with what fill returns. Two processes that race end
// with one content.
func readOrMake(path string, fill func() (string, error)) (string, error) {
	for {
		b, err := os.ReadFile(path)
		if err == nil {
			return strings.TrimSpace(string(b)), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("read %s: %w", path, err)
		}
		text, err := fill()
		if err != nil {
			return "", err
		}
		if err := writeNew(path, []byte(text+"\n"), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
}

// writeNew writes a file that must not exist, so that it appears whole or not at all.
func writeNew(path string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone when linked
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Link(f.Name(), path)
}

// StorageGrant is what the grants of a task for storage elsewhere are sealed for.
func StorageGrant(id berth.TaskID) string { return "storage " + string(id) }
