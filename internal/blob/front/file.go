package front

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"syscall"

	"github.com/berthml/berth"
)

// putFile keeps a file of this machine that a header names, for a client that could send it as
// well, and sends it when this fails. The answer has lines of how many bytes are kept so far; the
// last one is "done" when all is kept.
func (c *call) putFile() error {
	if c.h.o.Near == nil || !c.h.o.Near(c.r) {
		return coded(berth.Denied, "AuthorizationPermissionMismatch", "files of this machine are read for its user alone; send the content")
	}
	var in berth.FileHere
	if err := json.Unmarshal([]byte(c.r.Header.Get(berth.FileHereHeader)), &in); err != nil {
		return coded(berth.Invalid, "InvalidHeaderValue", "the header "+berth.FileHereHeader+" does not name a file")
	}
	if err := c.mayStore("w", in.Size); err != nil {
		return err
	}
	f, err := openHere(in)
	if err != nil {
		return coded(berth.Conflict, "CannotVerifyCopySource", in.Path+" is another file here, or none: send the content")
	}
	defer f.Close() // opened for reading
	o, err := c.options()
	if err != nil {
		return err
	}
	o.Size = in.Size
	out, begun := http.NewResponseController(c.w), false
	_, err = c.h.store.PutFile(c.r.Context(), c.container, c.name, f, o, func(n int64) error {
		begun = true
		_, err := fmt.Fprintln(c.w, n)
		return errors.Join(err, out.Flush())
	})
	switch {
	case err == nil:
		fmt.Fprintln(c.w, "done")
	case !begun:
		return err
	default:
		c.h.o.Log.Warn("a file was not kept", "request", c.id, "container", c.container, "blob", c.name, "err", err)
	}
	return nil
}

// openNow opens a file for reading without waiting for the other end of a pipe, which may be there
// since it was looked at.
func openNow(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// openHere opens the file that is meant, as far as its path, size and time tell.
func openHere(in berth.FileHere) (*os.File, error) {
	is := func(info fs.FileInfo, err error) error {
		if err == nil && (!info.Mode().IsRegular() || info.Size() != in.Size || !info.ModTime().Equal(in.Modified)) {
			err = fs.ErrNotExist
		}
		return err
	}
	if err := is(os.Stat(in.Path)); err != nil { // to open a device can have effects
		return nil, err
	}
	f, err := openNow(in.Path)
	if err != nil {
		return nil, err
	}
	if err := is(f.Stat()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
