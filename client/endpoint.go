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
	s, err := c.Scorer(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	return s.Do(ctx, http.MethodPost, "score", deployment, body)
}

// ExplainEndpoint says why an online endpoint is as it is.
func (c *Client) ExplainEndpoint(ctx context.Context, name string) (*berth.EndpointExplanation, error) {
	var e berth.EndpointExplanation
	err := c.Post(ctx, map[string]any{}, &e, "onlineEndpoints", name, "explain")
	return &e, err
}

// EndpointMetrics is what the deployments of an online endpoint do and use now.
func (c *Client) EndpointMetrics(ctx context.Context, name string) ([]berth.DeploymentMetrics, error) {
	var got struct{ Value []berth.DeploymentMetrics }
	err := c.Post(ctx, map[string]any{}, &got, "onlineEndpoints", name, "metrics")
	return got.Value, err
}

// ServingMetrics is that of all online endpoints of the workspace.
func (c *Client) ServingMetrics(ctx context.Context) ([]berth.DeploymentMetrics, error) {
	var got struct{ Value []berth.DeploymentMetrics }
	err := c.call(ctx, http.MethodGet, c.path("endpointMetrics"), nil, &got)
	return got.Value, err
}

// A Scorer sends requests to an online endpoint, with a credential that it asked for once.
type Scorer struct {
	c    *Client
	path string
	key  string
}

// Scorer returns a Scorer for an endpoint of the workspace.
func (c *Client) Scorer(ctx context.Context, endpoint Document) (*Scorer, error) {
	key, err := c.Credential(ctx, endpoint)
	return &Scorer{c, c.Workspace.EndpointPath(endpoint.Name()), key}, err
}

// Do sends a request to a path below the endpoint. deployment may be empty.
func (s *Scorer) Do(ctx context.Context, method, path, deployment string, body []byte) (*Scored, error) {
	req, err := s.c.request(ctx, method, s.path+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("User-Agent", "berth/"+berth.Version)
	if deployment != "" {
		req.Header.Set(berth.DeploymentHeader, deployment)
	}
	resp, err := s.c.http.Do(req)
	if err != nil {
		return nil, s.c.lost(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return &Scored{resp.StatusCode, resp.Header, b}, s.c.lost(err)
}
