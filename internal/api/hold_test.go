package api_test

import (
	"bufio"
	"context"
	"fmt"
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
	revoked := x.token("gone", auth.Reader)
	jwt := x.as("", "GET", "/msi/token?resource=https://management.azure.com", nil, "X-IDENTITY-HEADER", revoked).want(200).at("access_token").(string)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ends := make(chan error)
	opened := 0
	follow := func(tok string) (status int) {
		for _, path := range []string{x.ws + "/events", x.ws + "/jobs/j/logs?follow=true", "/mlflow/v2.0" + x.ws + "/api/2.0/berth/metrics/stream?run_id=j"} {
			req, err := http.NewRequestWithContext(ctx, "GET", srv.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+tok)
			req.Header.Set("Accept", "text/event-stream")
			resp, err := srv.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusOK {
				resp.Body.Close()
				return resp.StatusCode
			}
			opened++
			go func() {
				defer resp.Body.Close()
				s := bufio.NewScanner(resp.Body)
				for s.Scan() {
				}
				ends <- s.Err()
			}()
		}
		return http.StatusOK
	}
	for _, tok := range []string{revoked, jwt} {
		if status := follow(tok); status != http.StatusOK {
			t.Fatal(status)
		}
	}
	// A token that is over before both streams are open says nothing: the next one lives longer.
	for life, n := 300*time.Millisecond, 0; ; life, n = 2*life, n+1 {
		over := time.Now().Add(life)
		soon, err := x.auth.Create(t.Context(), auth.Token{Name: fmt.Sprint("soon", n), Role: auth.Reader, Expires: over})
		if err != nil {
			t.Fatal(err)
		}
		status := follow(soon)
		if status == http.StatusOK {
			break
		}
		if time.Now().Before(over) {
			t.Fatal(status)
		}
	}
	x.do("DELETE", "/tokens/gone", nil).want(204)
	for range opened {
		if err := <-ends; ctx.Err() != nil { // a log is cut off before its end; of events the last says why
			t.Fatalf("a stream went on without its token: %v", err)
		}
	}
}
