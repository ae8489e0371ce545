package front

import (
	"net/http"

	"github.com/berthml/berth/internal/blob"
)

// containerProperties answers for any container: they exist when they are asked for.
func (c *call) containerProperties() error {
	if err := blob.CheckContainer(c.container); err != nil {
		return err
	}
	hd := c.w.Header()
	hd.Set("ETag", `"0x1"`)
	hd.Set("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
	hd.Set("x-ms-lease-status", "unlocked")
	hd.Set("x-ms-lease-state", "available")
	c.w.WriteHeader(http.StatusOK)
	return nil
}

func (c *call) createContainer() error {
	if err := blob.CheckContainer(c.container); err != nil {
		return err
	}
	c.w.Header().Set("ETag", `"0x1"`)
	c.w.Header().Set("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
	c.w.WriteHeader(http.StatusCreated)
	return nil
}
