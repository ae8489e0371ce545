package parquet

import (
	"bytes"
	"compress/gzip"
	"io"
	"sync"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/berthml/berth"
)

// Codecs of pages.
const (
	uncompressed = 0
	snappyCodec  = 1
	gzipCodec    = 2
	zstdCodec    = 6
)

// codecNames are those that are known and not supported.
var codecNames = map[int64]string{3: "LZO", 4: "Brotli", 5: "LZ4", 7: "LZ4"}

func checkCodec(codec int64) error {
	switch codec {
	case uncompressed, snappyCodec, gzipCodec, zstdCodec:
		return nil
	}
	name := codecNames[codec]
	if name == "" {
		return damaged("compression %d is not known", codec)
	}
	return berth.Errorf(berth.Invalid, "rows of Parquet files that are compressed with %s cannot be selected on a node: compress them with Snappy, gzip or Zstandard, or use mode ro_mount or direct", name)
}

// The Zstandard coders are safe for concurrent use, and made when they are first needed.
var (
	zstdReader = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPage))
	})
	zstdWriter = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	})
)

// decompress returns the size bytes that b stands for.
func decompress(codec int64, b []byte, size int) (out []byte, err error) {
	switch codec {
	case uncompressed:
		out = b
	case snappyCodec:
		n, err := snappy.DecodedLen(b)
		if err != nil || n != size || n > 64*len(b) { // one byte stands for fewer
			return nil, damaged("a page is not compressed as it says")
		}
		if out, err = snappy.Decode(nil, b); err != nil {
			return nil, damaged("a page is not compressed as it says: %w", err)
		}
	case gzipCodec:
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, damaged("a page is not compressed as it says: %w", err)
		}
		if out, err = io.ReadAll(io.LimitReader(z, int64(size)+1)); err != nil {
			return nil, damaged("a page is not compressed as it says: %w", err)
		}
	case zstdCodec:
		z, err := zstdReader()
		if err != nil {
			return nil, err
		}
		// The buffer grows with what is there, whatever the page says, and at most to maxPage.
		if out, err = z.DecodeAll(b, make([]byte, 0, min(size, 64*len(b)))); err != nil {
			return nil, damaged("a page is not compressed as it says: %w", err)
		}
	}
	if len(out) != size {
		return nil, damaged("a page has %d bytes, and says %d", len(out), size)
	}
	return out, nil
}

func compress(codec int64, b []byte) ([]byte, error) {
	switch codec {
	case snappyCodec:
		return snappy.Encode(nil, b), nil
	case gzipCodec:
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		_, err := z.Write(b)
		if cerr := z.Close(); err == nil {
			err = cerr
		}
		return out.Bytes(), err
	case zstdCodec:
		z, err := zstdWriter()
		if err != nil {
			return nil, err
		}
		return z.EncodeAll(b, nil), nil
	}
	return b, nil
}
