package backup

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// TestUnreadableIsNotWhole encrypts a file whose disk fails between two chunks: that is an error,
// not the end of the file.
func TestUnreadableIsNotWhole(t *testing.T) {
	broken := errors.New("input/output error")
	s := &sealed{key: make([]byte, 32)}
	from := io.MultiReader(bytes.NewReader(make([]byte, sealChunk)), iotest.ErrReader(broken))
	if err := s.encrypt(io.Discard, from, "x"); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}
