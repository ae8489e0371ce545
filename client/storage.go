package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/berthml/berth"
)

// StorageUse asks what takes space in the workspace, grouped by kind, user, job or age; grouped by
// workspace, in all workspaces.
func (c *Client) StorageUse(ctx context.Context, by []string) (*berth.StorageUse, error) {
	var u berth.StorageUse
	err := c.call(ctx, http.MethodGet, c.path("storage")+"?"+url.Values{"by": {strings.Join(by, ",")}}.Encode(), nil, &u)
	return &u, err
}

// CleanStorage deletes files of jobs, or says what would be deleted.
func (c *Client) CleanStorage(ctx context.Context, q berth.CleanStorage) (*berth.CleanedStorage, error) {
	var out berth.CleanedStorage
	err := c.call(ctx, http.MethodPost, c.path("cleanStorage"), q, &out)
	return &out, err
}
