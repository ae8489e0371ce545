package api_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/berthml/berth/internal/auth"
)

// TestStreamsEndWithTheirToken: revoking or outliving a token closes what it had open.
func TestStreamsEndWithTheirToken(t *testing.T) {
	x := open(t)
	srv := httptest.NewServer(x.h)
	defer srv.Close()
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "true")).want(201)
	soon, err := x.auth.Create(t.Context(), auth.Token{Name: "soon", Role: auth.Reader, Expires: time.Now().Add(300 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	revoked := x.token("gone", auth.Reader)
	jwt := x.as("", "GET", "/msi/token?resource=x", nil, "X-IDENTITY-HEADER", revoked).want(200).at("access_token").(string)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	ends := make(chan error, 6)
	for _, tok := range []string{soon, revoked, jwt} {
		for _, path := range []string{"/events", "/jobs/j/logs?follow=true"} {
			req, err := http.NewRequestWithContext(ctx, "GET", srv.URL+x.ws+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+tok)
			req.Header.Set("Accept", "text/event-stream")
			resp, err := srv.Client().Do(req)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(resp, err)
			}
			go func() {
				defer resp.Body.Close()
				s := bufio.NewScanner(resp.Body)
				for s.Scan() {
				}
				ends <- s.Err()
			}()
		}
	}
	x.do("DELETE", "/tokens/gone", nil).want(204)
	for range cap(ends) {
		if err := <-ends; err != nil {
			t.Fatalf("a stream went on without its token: %v", err)
		}
	}
}
