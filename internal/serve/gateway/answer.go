package gateway

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"strconv"
	"strings"
)

// errAnswer is of a worker that sends what is not an answer.
var errAnswer = errors.New("the replica sent what is not an answer of HTTP")

// field is a header of an answer.
type field struct{ name, value string }

// An answer is what a worker sent: all of its header, and its body as it is read.
type answer struct {
	status  int
	fields  []field
	length  int64 // of the body; -1 where it is not known before
	chunked bool
	last    bool   // the connection ends with it
	upgrade string // to another protocol
	body    io.Reader
	trailer func() ([]field, error) // once the body has been read
}

// readAnswer reads the answer to a request of a method from a worker, but not its body.
func readAnswer(in *bufio.Reader, method string) (*answer, error) {
	for {
		a, err := readHead(in)
		if err != nil {
			return nil, err
		}
		if a.status == http.StatusSwitchingProtocols || a.status >= 200 {
			return a, a.frame(in, method)
		}
	}
}

// readHead reads the status line and the headers.
func readHead(in *bufio.Reader) (*answer, error) {
	text, err := readBlock(in)
	if err != nil {
		return nil, err
	}
	line, rest, _ := strings.Cut(text, "\n")
	line = strings.TrimSuffix(line, "\r")
	if len(line) < 12 || line[:7] != "HTTP/1." || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return nil, errAnswer
	}
	a := &answer{length: -1, last: line[7] == '0'}
	if a.status, err = strconv.Atoi(line[9:12]); err != nil || a.status < 100 || a.status > 599 {
		return nil, errAnswer
	}
	a.fields, err = parseFields(rest)
	return a, err
}

// readBlock reads lines up to an empty one.
func readBlock(in *bufio.Reader) (string, error) {
	var text []byte
	for {
		line, err := in.ReadSlice('\n')
		if len(text)+len(line) > maxHead {
			return "", errAnswer
		}
		text = append(text, line...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && len(text) > 0 && errors.Is(err, io.EOF):
			return "", io.ErrUnexpectedEOF
		case err != nil:
			return "", err
		}
		if len(line) == 1 || len(line) == 2 && line[0] == '\r' {
			if ends := len(text) - len(line); ends == 0 || text[ends-1] == '\n' {
				return string(text), nil
			}
		}
	}
}

// parseFields reads the lines of a header.
func parseFields(text string) ([]field, error) {
	fields := make([]field, 0, 12)
	for text != "" {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		if line = strings.TrimSuffix(line, "\r"); line == "" {
			continue // the last
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !ok || !isToken(name) || !isText(value) {
			return nil, errAnswer
		}
		fields = append(fields, field{textproto.CanonicalMIMEHeaderKey(name), value})
	}
	return fields, nil
}

// frame finds out how long the body is, and takes out what is about the connection.
func (a *answer) frame(in *bufio.Reader, method string) error {
	var named []string // by Connection
	lengths := 0
	for _, f := range a.fields {
		switch f.name {
		case "Content-Length":
			n, err := strconv.ParseInt(f.value, 10, 64)
			if err != nil || n < 0 || f.value[0] == '+' || lengths > 0 && n != a.length {
				return errAnswer
			}
			a.length = n
			lengths++
		case "Transfer-Encoding":
			if a.chunked || !strings.EqualFold(f.value, "chunked") {
				return errAnswer
			}
			a.chunked = true
		case "Connection":
			for word := range strings.SplitSeq(f.value, ",") {
				word = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(word))
				a.last = a.last || word == "Close"
				named = append(named, word)
			}
		case "Upgrade":
			a.upgrade = f.value
		}
	}
	if a.chunked && lengths > 0 {
		return errAnswer // whose length is it? Some would say one, some the other
	}
	kept := a.fields[:0]
	for i, f := range a.fields {
		if hopByHop(f.name, named) || f.name == "Content-Length" && (a.chunked || i > 0 && has(kept, f.name)) {
			continue
		}
		kept = append(kept, f)
	}
	a.fields = kept
	switch {
	case a.status == http.StatusSwitchingProtocols:
		a.length, a.last = 0, true
	case method == http.MethodHead || a.status == http.StatusNoContent || a.status == http.StatusNotModified:
		a.length, a.chunked, a.body = 0, false, http.NoBody
	case a.chunked:
		a.body = httputil.NewChunkedReader(in)
		a.trailer = func() ([]field, error) {
			text, err := readBlock(in)
			if err != nil {
				return nil, err
			}
			return parseFields(text)
		}
	case a.length >= 0:
		a.body = &exactly{in, a.length}
	default:
		a.last, a.body = true, in
	}
	return nil
}

func has(fields []field, name string) bool {
	for _, f := range fields {
		if f.name == name {
			return true
		}
	}
	return false
}

// isToken says whether a name is one that a header can have.
func isToken(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte("()<>@,;:\\\"/[]?={}", c) >= 0 {
			return false
		}
	}
	return name != ""
}

// isText says whether a value is one that a header can have.
func isText(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// exactly reads a body of a known length.
type exactly struct {
	in   io.Reader
	left int64
}

func (e *exactly) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.in.Read(p[:min(int64(len(p)), e.left)])
	if e.left -= int64(n); e.left > 0 && errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// hopByHop says whether a header is about one connection, and not for who is behind it.
func hopByHop(name string, named []string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	for _, n := range named {
		if n == name {
			return true
		}
	}
	return false
}
