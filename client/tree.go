package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/berthml/berth"
)

// What lies above workspaces in the tree of resources: subscriptions and resource groups. Paths
// begin with /subscriptions.

// Tree goes through a list.
func (c *Client) Tree(ctx context.Context, path string) iter.Seq2[Document, error] {
	return list[Document](ctx, c, escape(path), nil)
}

// TreeGet reads one.
func (c *Client) TreeGet(ctx context.Context, path string) (Document, error) {
	var d Document
	return d, c.call(ctx, http.MethodGet, escape(path), nil, &d)
}

// TreePut makes or changes one.
func (c *Client) TreePut(ctx context.Context, body any, path string) (Document, error) {
	var d Document
	return d, c.call(ctx, http.MethodPut, escape(path), body, &d)
}

// TreePost asks something of one.
func (c *Client) TreePost(ctx context.Context, body any, path string) (Document, error) {
	var d Document
	return d, c.call(ctx, http.MethodPost, escape(path), body, &d)
}

// TreeDelete removes one.
func (c *Client) TreeDelete(ctx context.Context, path string) error {
	return c.call(ctx, http.MethodDelete, escape(path), nil, nil)
}

func escape(path string) string { return (&url.URL{Path: path}).EscapedPath() }

// AccessToken is a token that gives access to the API for a limited time.
type AccessToken struct {
	Token   string
	Expires time.Time
}

// AccessToken asks for a token in the name of a lasting one, as Azure's clients do.
func (c *Client) AccessToken(ctx context.Context, secret, resource string) (AccessToken, error) {
	req, err := c.request(ctx, http.MethodGet, "/msi/token?api-version=2019-08-01&resource="+url.QueryEscape(resource), nil)
	if err != nil {
		return AccessToken{}, err
	}
	req.Header.Set("X-IDENTITY-HEADER", secret)
	var got struct {
		Token   string `json:"access_token"`
		Expires string `json:"expires_on"`
	}
	if _, err := c.answer(req, &got); err != nil {
		return AccessToken{}, err
	}
	n, err := strconv.ParseInt(got.Expires, 10, 64)
	if err != nil {
		return AccessToken{}, berth.Errorf(berth.Internal, "the token's expiry cannot be read: %w", err)
	}
	return AccessToken{got.Token, time.Unix(n, 0)}, nil
}
