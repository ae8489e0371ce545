package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"

	"github.com/berthml/berth"
)

// InvokeBatch begins a job of a batch endpoint of the workspace and returns it. deployment may be
// empty; properties is the body as Azure has it. The request may be sent several times, and makes
// one job.
func (c *Client) InvokeBatch(ctx context.Context, endpoint, deployment string, properties map[string]any) (Document, error) {
	body, err := json.Marshal(map[string]any{"properties": properties})
	var d Document
	if err != nil {
		return d, err
	}
	id := rand.Text()
	err = c.persist(ctx, http.MethodPut, func() error { // it can be repeated as a PUT can
		req, err := c.request(ctx, http.MethodPost, c.Workspace.BatchPath(endpoint), body)
		if err != nil {
			return err
		}
		req.Header.Set("Repeatability-Request-Id", id)
		if deployment != "" {
			req.Header.Set(berth.DeploymentHeader, deployment)
		}
		_, err = c.answer(req, &d)
		return err
	})
	return d, err
}

// BatchJobs are the jobs of a batch endpoint of the workspace, the newest first.
func (c *Client) BatchJobs(ctx context.Context, endpoint string) ([]Document, error) {
	var list struct{ Value []Document }
	err := c.call(ctx, http.MethodGet, c.Workspace.BatchPath(endpoint), nil, &list)
	return list.Value, err
}
