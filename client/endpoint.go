package client

import (
	"context"
	"io"
	"net/http"

	"github.com/berthml/berth"
)

// Scored is the answer of an online endpoint.
type Scored struct {
	Status int
	Header http.Header
	Body   []byte
}

// Credential is what calls an online endpoint of the workspace: its first key, or a token.
func (c *Client) Credential(ctx context.Context, endpoint Document) (string, error) {
	var got struct{ PrimaryKey, AccessToken string }
	action := "token"
	switch mode, _ := endpoint.Properties()["authMode"].(string); mode {
	case "Key", "key":
		action = "listKeys"
	case "AADToken", "aadToken", "aad_token":
		return c.cfg.Token, nil
	}
	err := c.Post(ctx, map[string]any{}, &got, "onlineEndpoints", endpoint.Name(), action)
	if got.AccessToken != "" {
		return got.AccessToken, err
	}
	return got.PrimaryKey, err
}

// Score sends a request to an online endpoint of the workspace. deployment may be empty.
func (c *Client) Score(ctx context.Context, endpoint Document, deployment string, body []byte) (*Scored, error) {
	key, err := c.Credential(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	req, err := c.request(ctx, http.MethodPost, c.Workspace.EndpointPath(endpoint.Name())+"score", body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("User-Agent", "berth/"+berth.Version)
	if deployment != "" {
		req.Header.Set(berth.DeploymentHeader, deployment)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.lost(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return &Scored{resp.StatusCode, resp.Header, b}, c.lost(err)
}
