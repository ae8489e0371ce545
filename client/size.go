package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/berthml/berth"
)

// SizeQuery selects sizes. Empty conditions match all.
type SizeQuery struct {
	Location string // that has them
	Type     string // of compute that can have them: AmlCompute, ComputeInstance
	Family   string // or series
}

// Sizes lists VM sizes with all their properties, in the order of the catalogue.
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

// PutSize creates a custom size, or changes one of Azure's. body has the members of berth.Size to
// set.
func (c *Client) PutSize(ctx context.Context, name string, body any) (berth.Size, error) {
	var s berth.Size
	err := c.call(ctx, http.MethodPut, "/berth/v1/sizes/"+url.PathEscape(name), body, &s)
	return s, err
}

// DeleteSize undoes PutSize.
func (c *Client) DeleteSize(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, "/berth/v1/sizes/"+url.PathEscape(name), nil, nil)
}

// Usage is the use of a resource at a location, in Azure's form. A Limit of -1 means none.
type Usage struct {
	ID       string    `json:"id"`
	Location string    `json:"amlWorkspaceLocation"`
	Type     string    `json:"type"`
	Unit     string    `json:"unit"`
	Used     int       `json:"currentValue"`
	Limit    int       `json:"limit"`
	Name     UsageName `json:"name"`
}

// UsageName names what a Usage measures, for programs and for people.
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

// Location returns the location of the client's workspace.
func (c *Client) Location(ctx context.Context) (string, error) {
	d, err := c.Get(ctx)
	s, _ := d.Members["location"].(string)
	return s, err
}
