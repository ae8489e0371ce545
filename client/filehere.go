package client

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/berthml/berth"
)

// nameFile has a server on this machine read a file itself. Where it does not, for whatever reason,
// done is false, and the file is to be sent.
func (c *Client) nameFile(ctx context.Context, address string, file *os.File, f File, count func(int64)) (done bool) {
	path, err := filepath.Abs(file.Name())
	if err != nil {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Size() != f.Size {
		return false
	}
	name, err := json.Marshal(berth.FileHere{Path: path, Size: f.Size, Modified: info.ModTime()})
	if err != nil {
		return false
	}
	req, err := c.blobRequest(ctx, http.MethodPut, withQuery(address, "comp=file"))
	if err != nil {
		return false
	}
	req.Header.Set(berth.FileHereHeader, string(name))
	if f.Hash != "" {
		req.Header.Set(berth.ContentHashHeader, f.Hash)
	}
	resp, err := c.blob(req, http.StatusOK)
	if err != nil {
		return false
	}
	defer resp.Body.Close() // opened for reading
	var kept int64
	defer func() {
		if !done {
			count(-kept) // all of it is sent
		}
	}()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if lines.Text() == "done" {
			return true
		}
		n, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil {
			return false
		}
		count(n - kept)
		kept = n
	}
	return false
}
