package keepalive

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
)

// Serve answers a request whose body was read already, and all that follow it on the connection as
// a Client sends them: posts to path of at most limit bytes. Whatever else comes ends it, and so
// does an error. body is used again for the next one.
func Serve(conn net.Conn, in *bufio.Reader, path string, limit int, body []byte, answer func(a *Answer, body []byte)) {
	var a Answer
	for {
		a.reset()
		answer(&a, body)
		if a.send(conn) != nil {
			return
		}
		var err error
		if body, err = request(in, path, limit, body); err != nil {
			return
		}
	}
}

var errOther = errors.New("a request of another form: it is for another connection")

// request reads one, into space if there is enough.
func request(r *bufio.Reader, path string, limit int, space []byte) ([]byte, error) {
	first, err := r.ReadSlice('\n')
	if err != nil || string(bytes.TrimRight(first, "\r\n")) != "POST "+path+" HTTP/1.1" {
		return nil, errors.Join(errOther, err)
	}
	length := -1
	for {
		l, err := r.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if l = bytes.TrimRight(l, "\r\n"); len(l) == 0 {
			break
		}
		name, value, _ := bytes.Cut(l, []byte(":"))
		switch value = bytes.TrimSpace(value); {
		case bytes.EqualFold(name, []byte("Content-Length")) && length < 0:
			if length, err = strconv.Atoi(string(value)); err != nil {
				return nil, err
			}
		case bytes.EqualFold(name, []byte("Host")), bytes.EqualFold(name, []byte("Content-Type")):
		default:
			return nil, errOther
		}
	}
	if length < 0 || length > limit {
		return nil, errOther
	}
	if cap(space) < length || cap(space) > 64<<10 {
		space = make([]byte, length)
	}
	_, err = io.ReadFull(r, space[:length])
	return space[:length], err
}

// Answer is a JSON answer that is sent in one piece. It is an [http.ResponseWriter] too; its header
// is not sent.
type Answer struct {
	Status int // 200 unless somebody says otherwise
	Body   []byte

	header http.Header
	out    []byte
}

// Header implements http.ResponseWriter.
func (a *Answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *Answer) WriteHeader(status int) { a.Status = status }

// Write implements http.ResponseWriter.
func (a *Answer) Write(p []byte) (int, error) {
	a.Body = append(a.Body, p...)
	return len(p), nil
}

func (a *Answer) reset() {
	if a.header == nil || len(a.header) > 0 {
		a.header = http.Header{}
	}
	a.Status, a.Body = http.StatusOK, nil
}

func (a *Answer) send(c net.Conn) error {
	a.out = append(a.out[:0], "HTTP/1.1 "...)
	a.out = strconv.AppendInt(a.out, int64(a.Status), 10)
	a.out = append(a.out, " "+http.StatusText(a.Status)+"\r\nContent-Type: application/json\r\nContent-Length: "...)
	a.out = strconv.AppendInt(a.out, int64(len(a.Body)), 10)
	a.out = append(append(a.out, "\r\n\r\n"...), a.Body...)
	_, err := c.Write(a.out)
	return err
}
