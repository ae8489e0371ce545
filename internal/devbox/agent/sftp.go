//go:build !windows

package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// The file transfer protocol of ssh, version 3 (draft-ietf-secsh-filexfer-02), which is the one
// everybody speaks. Requests are answered one after the other, in order.

// Types of packets.
const (
	fxInit     = 1
	fxVersion  = 2
	fxOpen     = 3
	fxClose    = 4
	fxRead     = 5
	fxWrite    = 6
	fxLstat    = 7
	fxFstat    = 8
	fxSetstat  = 9
	fxFsetstat = 10
	fxOpendir  = 11
	fxReaddir  = 12
	fxRemove   = 13
	fxMkdir    = 14
	fxRmdir    = 15
	fxRealpath = 16
	fxStat     = 17
	fxRename   = 18
	fxReadlink = 19
	fxSymlink  = 20
	fxExtended = 200
	fxStatus   = 101
	fxHandle   = 102
	fxData     = 103
	fxName     = 104
	fxAttrs    = 105
)

// Codes of a status.
const (
	fxOK          = 0
	fxEOF         = 1
	fxNoSuchFile  = 2
	fxDenied      = 3
	fxFailure     = 4
	fxBadMessage  = 5
	fxUnsupported = 8
)

// Flags of an open, and which attributes a file's description has.
const (
	openRead   = 0x01
	openWrite  = 0x02
	openAppend = 0x04
	openCreate = 0x08
	openTrunc  = 0x10
	openExcl   = 0x20

	attrSize  = 0x01
	attrOwner = 0x02
	attrMode  = 0x04
	attrTimes = 0x08
)

// maxPacket bounds a request, and maxRead an answer's data.
const (
	maxPacket = 1 << 20
	maxRead   = 256 << 10
)

// files is one conversation.
type files struct {
	rw   io.ReadWriter
	home string
	open map[string]*openFile
	next int
}

type openFile struct {
	*os.File
	appends bool
	listed  bool // a directory whose end was reached
}

// serveFiles answers until the client has enough. Paths that are not absolute are below home.
func serveFiles(rw io.ReadWriter, home string) error {
	s := &files{rw: rw, home: home, open: map[string]*openFile{}}
	defer func() {
		for _, f := range s.open {
			f.Close()
		}
	}()
	for {
		var head [4]byte
		if _, err := io.ReadFull(rw, head[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		n := binary.BigEndian.Uint32(head[:])
		if n < 1 || n > maxPacket {
			return fmt.Errorf("a packet of %d bytes", n)
		}
		p := make([]byte, n)
		if _, err := io.ReadFull(rw, p); err != nil {
			return err
		}
		if _, err := rw.Write(s.answer(p[0], &packet{b: p[1:]})); err != nil {
			return err
		}
	}
}

// packet is read from the front; what is missing reads as zero and sets bad.
type packet struct {
	b   []byte
	bad bool
}

func (p *packet) uint32() uint32 {
	if len(p.b) < 4 {
		p.b, p.bad = nil, true
		return 0
	}
	v := binary.BigEndian.Uint32(p.b)
	p.b = p.b[4:]
	return v
}

func (p *packet) uint64() uint64 { return uint64(p.uint32())<<32 | uint64(p.uint32()) }

func (p *packet) bytes() []byte {
	n := int(p.uint32())
	if n < 0 || n > len(p.b) {
		p.b, p.bad = nil, true
		return nil
	}
	v := p.b[:n]
	p.b = p.b[n:]
	return v
}

func (p *packet) text() string { return string(p.bytes()) }

// attrs are the attributes that a client gives.
type attrs struct {
	flags        uint32
	size         int64
	mode         os.FileMode
	atime, mtime time.Time
}

func (p *packet) attrs() (a attrs) {
	a.flags = p.uint32()
	if a.flags&attrSize != 0 {
		a.size = int64(p.uint64())
	}
	if a.flags&attrOwner != 0 {
		p.uint64() // not ours to give away
	}
	if a.flags&attrMode != 0 {
		a.mode = os.FileMode(p.uint32() & 0o777)
	}
	if a.flags&attrTimes != 0 {
		a.atime, a.mtime = time.Unix(int64(p.uint32()), 0), time.Unix(int64(p.uint32()), 0)
	}
	return a
}

// reply builds an answer.
type reply struct{ b []byte }

func newReply(kind byte, id uint32) *reply {
	r := &reply{b: []byte{0, 0, 0, 0, kind}}
	return r.uint32(id)
}

func (r *reply) uint32(v uint32) *reply { r.b = binary.BigEndian.AppendUint32(r.b, v); return r }
func (r *reply) uint64(v uint64) *reply { r.b = binary.BigEndian.AppendUint64(r.b, v); return r }

func (r *reply) text(s string) *reply {
	r.uint32(uint32(len(s)))
	r.b = append(r.b, s...)
	return r
}

func (r *reply) done() []byte {
	binary.BigEndian.PutUint32(r.b, uint32(len(r.b)-4))
	return r.b
}

// describe adds the attributes of a file.
func (r *reply) describe(info fs.FileInfo) *reply {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return r.uint32(0)
	}
	r.uint32(attrSize | attrOwner | attrMode | attrTimes).uint64(uint64(info.Size())).uint32(st.Uid).uint32(st.Gid)
	r.uint32(uint32(st.Mode)) //nolint:unconvert // another type on other systems
	return r.uint32(uint32(info.ModTime().Unix())).uint32(uint32(info.ModTime().Unix()))
}

func status(id uint32, err error) []byte {
	code, msg := uint32(fxOK), "ok"
	if err != nil {
		msg = err.Error()
		switch {
		case errors.Is(err, io.EOF):
			code = fxEOF
		case errors.Is(err, fs.ErrNotExist):
			code = fxNoSuchFile
		case errors.Is(err, fs.ErrPermission):
			code = fxDenied
		case errors.Is(err, errBad):
			code = fxBadMessage
		case errors.Is(err, errors.ErrUnsupported):
			code = fxUnsupported
		default:
			code = fxFailure
		}
	}
	return newReply(fxStatus, id).uint32(code).text(msg).text("").done()
}

var errBad = errors.New("the request is truncated or refers to a file that is not open")

// answer carries out one request.
func (s *files) answer(kind byte, p *packet) []byte {
	if kind == fxInit {
		r := &reply{b: []byte{0, 0, 0, 0, fxVersion}}
		return r.uint32(3).text("posix-rename@openssh.com").text("1").text("fsync@openssh.com").text("1").done()
	}
	id := p.uint32()
	out, err := s.carryOut(kind, id, p)
	if p.bad {
		err = errBad
	}
	if err != nil || out == nil {
		return status(id, err)
	}
	return out.done()
}

// carryOut does what is asked; nil and no error is a plain success.
func (s *files) carryOut(kind byte, id uint32, p *packet) (*reply, error) {
	switch kind {
	case fxOpen:
		return s.openFile(id, s.path(p.text()), p.uint32(), p.attrs())
	case fxOpendir:
		f, err := os.Open(s.path(p.text()))
		if err != nil {
			return nil, err
		}
		if info, err := f.Stat(); err != nil || !info.IsDir() {
			f.Close()
			return nil, &fs.PathError{Op: "open", Path: f.Name(), Err: syscall.ENOTDIR}
		}
		return s.handle(id, &openFile{File: f}), nil
	case fxClose:
		name := p.text()
		f := s.open[name]
		if f == nil {
			return nil, errBad
		}
		delete(s.open, name)
		return nil, f.Close()
	case fxRead, fxWrite, fxFstat, fxFsetstat, fxReaddir:
		f := s.open[p.text()]
		if f == nil {
			return nil, errBad
		}
		return s.onFile(kind, id, f, p)
	case fxStat, fxLstat:
		look := os.Stat
		if kind == fxLstat {
			look = os.Lstat
		}
		info, err := look(s.path(p.text()))
		if err != nil {
			return nil, err
		}
		return newReply(fxAttrs, id).describe(info), nil
	case fxSetstat:
		return nil, change(s.path(p.text()), p.attrs())
	case fxRemove:
		path := s.path(p.text())
		if info, err := os.Lstat(path); err == nil && info.IsDir() {
			return nil, &fs.PathError{Op: "remove", Path: path, Err: syscall.EISDIR}
		}
		return nil, os.Remove(path)
	case fxMkdir:
		path, a := s.path(p.text()), p.attrs()
		mode := os.FileMode(0o755)
		if a.flags&attrMode != 0 {
			mode = a.mode
		}
		return nil, os.Mkdir(path, mode)
	case fxRmdir:
		return nil, syscall.Rmdir(s.path(p.text()))
	case fxRealpath:
		path := s.path(p.text())
		return newReply(fxName, id).uint32(1).text(path).text(path).uint32(0), nil
	case fxRename:
		from, to := s.path(p.text()), s.path(p.text())
		if _, err := os.Lstat(to); err == nil {
			return nil, fmt.Errorf("%s exists", to)
		}
		return nil, os.Rename(from, to)
	case fxReadlink:
		to, err := os.Readlink(s.path(p.text()))
		if err != nil {
			return nil, err
		}
		return newReply(fxName, id).uint32(1).text(to).text(to).uint32(0), nil
	case fxSymlink:
		to, at := p.text(), s.path(p.text()) // in the order OpenSSH sends them
		return nil, os.Symlink(to, at)
	case fxExtended:
		switch p.text() {
		case "posix-rename@openssh.com":
			return nil, os.Rename(s.path(p.text()), s.path(p.text()))
		case "fsync@openssh.com":
			f := s.open[p.text()]
			if f == nil {
				return nil, errBad
			}
			return nil, f.Sync()
		}
	}
	return nil, fmt.Errorf("request %d: %w", kind, errors.ErrUnsupported)
}

func (s *files) path(p string) string {
	if !filepath.IsAbs(p) {
		p = filepath.Join(s.home, p)
	}
	return filepath.Clean(p)
}

func (s *files) handle(id uint32, f *openFile) *reply {
	s.next++
	name := strconv.Itoa(s.next)
	s.open[name] = f
	return newReply(fxHandle, id).text(name)
}

func (s *files) openFile(id uint32, path string, want uint32, a attrs) (*reply, error) {
	flags := os.O_RDONLY
	switch {
	case want&openRead != 0 && want&openWrite != 0:
		flags = os.O_RDWR
	case want&openWrite != 0:
		flags = os.O_WRONLY
	}
	for _, f := range []struct {
		want uint32
		flag int
	}{{openAppend, os.O_APPEND}, {openCreate, os.O_CREATE}, {openTrunc, os.O_TRUNC}, {openExcl, os.O_EXCL}} {
		if want&f.want != 0 {
			flags |= f.flag
		}
	}
	mode := os.FileMode(0o644)
	if a.flags&attrMode != 0 {
		mode = a.mode
	}
	f, err := os.OpenFile(path, flags, mode)
	if err != nil {
		return nil, err
	}
	return s.handle(id, &openFile{File: f, appends: want&openAppend != 0}), nil
}

// onFile is a request about an open file.
func (s *files) onFile(kind byte, id uint32, f *openFile, p *packet) (*reply, error) {
	switch kind {
	case fxRead:
		offset, n := p.uint64(), min(p.uint32(), maxRead)
		b := make([]byte, n)
		got, err := f.ReadAt(b, int64(offset))
		if got == 0 && err != nil {
			return nil, err
		}
		return newReply(fxData, id).text(string(b[:got])), nil
	case fxWrite:
		offset, b := p.uint64(), p.bytes()
		if p.bad {
			return nil, errBad
		}
		var err error
		if f.appends {
			_, err = f.Write(b)
		} else {
			_, err = f.WriteAt(b, int64(offset))
		}
		return nil, err
	case fxFstat:
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		return newReply(fxAttrs, id).describe(info), nil
	case fxFsetstat:
		return nil, change(f.Name(), p.attrs())
	}
	if f.listed {
		return nil, io.EOF
	}
	list, err := f.ReadDir(100)
	if len(list) == 0 {
		f.listed = true
		if err == nil {
			err = io.EOF
		}
		return nil, err
	}
	r := newReply(fxName, id)
	at, n := len(r.b), 0
	r.uint32(0)
	for _, e := range list {
		info, err := e.Info()
		if err != nil {
			continue // gone meanwhile
		}
		n++
		r.text(e.Name()).text(long(info)).describe(info)
	}
	binary.BigEndian.PutUint32(r.b[at:], uint32(n))
	return r, nil
}

// long is a line as ls writes it.
func long(info fs.FileInfo) string {
	return fmt.Sprintf("%s 1 %8d %s %s", info.Mode(), info.Size(), info.ModTime().Format("Jan _2 15:04"), info.Name())
}

// change gives a file the attributes a client asks for.
func change(path string, a attrs) error {
	if a.flags&attrSize != 0 {
		if err := os.Truncate(path, a.size); err != nil {
			return err
		}
	}
	if a.flags&attrMode != 0 {
		if err := os.Chmod(path, a.mode); err != nil {
			return err
		}
	}
	if a.flags&attrTimes != 0 {
		return os.Chtimes(path, a.atime, a.mtime)
	}
	return nil
}
