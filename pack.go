package berth

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

// A pack is many small files in one stream: of each a line of its size and path that a zero byte
// ends, and its bytes. A line with their number is at the end, without which the pack is not whole.

// AppendPackFile is what comes before the bytes of a file.
func AppendPackFile(b []byte, path string, size int64) []byte {
	b = strconv.AppendInt(b, size, 10)
	b = append(b, ' ')
	b = append(b, path...)
	return append(b, 0)
}

// AppendPackEnd is what comes after the last file.
func AppendPackEnd(b []byte, files int) []byte {
	b = append(b, "end "...)
	b = strconv.AppendInt(b, int64(files), 10)
	return append(b, 0)
}

// maxPackLine bounds the line of a file: a path of the length that blobs may have.
const maxPackLine = 8 << 10

// ReadPack calls f for each file of a pack. f reads as much of r as it wants, which ends with the
// file.
func ReadPack(from io.Reader, f func(path string, size int64, r io.Reader) error) error {
	in := bufio.NewReaderSize(from, 64<<10)
	for n := 0; ; n++ {
		line, err := packLine(in)
		if err != nil {
			return err
		}
		head, rest, _ := strings.Cut(line, " ")
		if head == "end" {
			if rest != strconv.Itoa(n) {
				return Errorf(Invalid, "the pack is incomplete: expected %s files, got %d", rest, n)
			}
			return nil
		}
		size, err := strconv.ParseInt(head, 10, 64)
		if err != nil || size < 0 || rest == "" {
			return Errorf(Invalid, "the pack has a line without a file name: %q", line)
		}
		body := &io.LimitedReader{R: in, N: size}
		if err := f(rest, size, body); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, body); err != nil {
			return err
		}
		if body.N > 0 {
			return cutPack()
		}
	}
}

func packLine(in *bufio.Reader) (string, error) {
	var line strings.Builder
	for {
		c, err := in.ReadByte()
		switch {
		case err == io.EOF:
			return "", cutPack()
		case err != nil:
			return "", err
		case c == 0:
			return line.String(), nil
		case line.Len() == maxPackLine:
			return "", Errorf(Invalid, "the pack has a line that is too long")
		}
		line.WriteByte(c)
	}
}

func cutPack() error { return Errorf(Unavailable, "the pack is truncated") }
