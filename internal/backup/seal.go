package backup

import (
	"bufio"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"golang.org/x/crypto/scrypt"

	"github.com/berthml/berth"
)

// An encrypted object is a salt of its own and chunks of AES-GCM under a key that is derived with
// it. The number of a chunk and whether it is the last are its nonce, and the name of the object
// is authenticated with each: nothing can be cut off, exchanged or put elsewhere. Names, which are
// hashes, and sizes can be seen.

const (
	sealChunk = 64 << 10
	sealSalt  = 16
	sealCost  = 1 << 15 // of scrypt: 32 MiB, about 100 ms
)

// sealParam is what the header of an encrypted place says.
type sealParam struct {
	Salt  []byte `json:"salt"`
	Cost  int    `json:"cost"`
	Check []byte `json:"check"` // tells the right passphrase from others
}

func masterKey(p sealParam, passphrase string) ([]byte, error) {
	if p.Cost < 1<<10 || p.Cost > 1<<22 || len(p.Salt) < sealSalt {
		return nil, berth.Errorf(berth.Invalid, "the encryption of the backups is described wrongly in %s", placeFile)
	}
	return scrypt.Key([]byte(passphrase), p.Salt, p.Cost, 8, 1, 32)
}

func checkOf(key []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("berth backup check"))
	return h.Sum(nil)
}

func newSeal(passphrase string) (*sealParam, error) {
	p := sealParam{Salt: make([]byte, sealSalt), Cost: sealCost}
	rand.Read(p.Salt) // crypto/rand.Read never fails
	key, err := masterKey(p, passphrase)
	p.Check = checkOf(key)
	return &p, err
}

// sealed is a place whose objects are encrypted.
type sealed struct {
	Place
	key []byte
}

func openSealed(p Place, param sealParam, passphrase string) (Place, error) {
	key, err := masterKey(param, passphrase)
	if err != nil {
		return nil, err
	}
	if !hmac.Equal(checkOf(key), param.Check) {
		return nil, berth.Errorf(berth.Denied, "the passphrase is not the one that the backups at %s were encrypted with", p)
	}
	return &sealed{p, key}, nil
}

func (s *sealed) cipher(salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, s.key, salt, "berth backup object", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func chunkNonce(n uint64, last bool) []byte {
	b := make([]byte, 12)
	binary.BigEndian.PutUint64(b[3:], n)
	if last {
		b[11] = 1
	}
	return b
}

// Put encrypts a file and keeps that.
func (s *sealed) Put(ctx context.Context, name string, f *os.File) error {
	out, err := os.CreateTemp("", "berth-sealed-")
	if err != nil {
		return err
	}
	// Where an open file can be removed, none is left if this process is killed.
	if os.Remove(out.Name()) != nil {
		defer os.Remove(out.Name())
	}
	defer out.Close()
	if err := s.encrypt(out, f, name); err != nil {
		return err
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return s.Place.Put(ctx, name, out)
}

func (s *sealed) encrypt(to io.Writer, from io.Reader, name string) error {
	salt := make([]byte, sealSalt)
	rand.Read(salt) // crypto/rand.Read never fails
	aead, err := s.cipher(salt)
	if err != nil {
		return err
	}
	if _, err := to.Write(salt); err != nil {
		return err
	}
	in := bufio.NewReaderSize(from, 2*sealChunk)
	buf := make([]byte, sealChunk)
	for n := uint64(0); ; n++ {
		k, err := io.ReadFull(in, buf)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		last, err := atEnd(in)
		if err != nil {
			return err
		}
		if _, err := to.Write(aead.Seal(nil, chunkNonce(n, last), buf[:k], []byte(name))); err != nil {
			return err
		}
		if last {
			return nil
		}
	}
}

// atEnd says whether everything was read. An error is no end: what was read so far is not whole.
func atEnd(in *bufio.Reader) (bool, error) {
	_, err := in.Peek(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// Get fetches an object and decrypts it.
func (s *sealed) Get(ctx context.Context, name, path string) error {
	if err := s.Place.Get(ctx, name, path+".sealed"); err != nil {
		return err
	}
	defer os.Remove(path + ".sealed")
	in, err := os.Open(path + ".sealed")
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(s.decrypt(out, in, name), out.Close())
}

func (s *sealed) decrypt(to io.Writer, from io.Reader, name string) error {
	damaged := berth.Errorf(berth.Invalid, "%s in %s is damaged: it cannot be decrypted", name, s)
	in := bufio.NewReaderSize(from, 2*sealChunk)
	salt := make([]byte, sealSalt)
	if _, err := io.ReadFull(in, salt); err != nil {
		return damaged
	}
	aead, err := s.cipher(salt)
	if err != nil {
		return err
	}
	buf := make([]byte, sealChunk+aead.Overhead())
	for n := uint64(0); ; n++ {
		k, err := io.ReadFull(in, buf)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.Join(damaged, err)
		}
		last, err := atEnd(in)
		if err != nil {
			return err
		}
		text, err := aead.Open(nil, chunkNonce(n, last), buf[:k], []byte(name))
		if err != nil {
			return damaged
		}
		if _, err := to.Write(text); err != nil {
			return err
		}
		if last {
			return nil
		}
	}
}
