package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/berthml/berth"
)

// SizeQuery chooses sizes. Conditions left empty hold for all.
type SizeQuery struct {
	Location string // that has them
	Type     string // of compute that can have them: AmlCompute, ComputeInstance
	Family   string // or series
}

// Sizes lists VM sizes with everything the server knows of them, in the order of its catalogue.
func (c *Client) Sizes(ctx context.Context, q SizeQuery) ([]berth.Size, error) {
	v := url.Values{}
	for key, value := range map[string]string{"location": q.Location, "computeType": q.Type, "family": q.Family} {
		if value != "" {
			v.Set(key, value)
		}
	}
	var p page[berth.Size]
	err := c.call(ctx, http.MethodGet, withQuery("/berth/v1/sizes", v.Encode()), nil, &p)
	return p.Value, err
}

// PutSize creates a custom size, or says what is different about one of Azure's. body has the
// members of berth.Size that are meant.
func (c *Client) PutSize(ctx context.Context, name string, body any) (berth.Size, error) {
	var s berth.Size
	err := c.call(ctx, http.MethodPut, "/berth/v1/sizes/"+url.PathEscape(name), body, &s)
	return s, err
}

// DeleteSize takes PutSize back.
func (c *Client) DeleteSize(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, "/berth/v1/sizes/"+url.PathEscape(name), nil, nil)
}

// Usage is how much of something is in use at a location, as Azure says it. A Limit of -1 is none.
type Usage struct {
	ID       string    `json:"id"`
	Location string    `json:"amlWorkspaceLocation"`
	Type     string    `json:"type"`
	Unit     string    `json:"unit"`
	Used     int       `json:"currentValue"`
	Limit    int       `json:"limit"`
	Name     UsageName `json:"name"`
}

// UsageName is what a Usage is about, for programs and for people.
type UsageName struct {
	Value string `json:"value"`
	Title string `json:"localizedValue"`
}

// Usages lists what is in use at a location.
func (c *Client) Usages(ctx context.Context, location string) ([]Usage, error) {
	path := "/subscriptions/" + url.PathEscape(c.Workspace.Subscription) + "/providers/" + berth.Provider + "/locations/" + url.PathEscape(location) + "/usages"
	var p page[Usage]
	err := c.call(ctx, http.MethodGet, path, nil, &p)
	return p.Value, err
}

// Location is where the client's workspace is.
func (c *Client) Location(ctx context.Context) (string, error) {
	d, err := c.Get(ctx)
	s, _ := d.Members["location"].(string)
	return s, err
}
