package app_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/driver/dialout"
	"github.com/berthml/berth/internal/driver/fake"
)

// TestStopLetsAgentsGo: a machine that is connected does not hold up the end: nothing has to be cut
// off.
func TestStopLetsAgentsGo(t *testing.T) {
	home := shortHome(t)
	s := start(t, home)
	at := s.ws + "/computes/laptop"
	if code, m := s.do("PUT", at, map[string]any{"location": "here", "properties": map[string]any{
		"computeType": "VirtualMachine", "properties": map[string]any{"connection": "agent"},
	}}); code/100 != 2 {
		t.Fatal(code, m)
	}
	code, m := s.do("POST", at+"/join", nil)
	if code != http.StatusOK {
		t.Fatal(code, m)
	}
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	connected := make(chan struct{}, 1)
	a := dialout.Agent{ID: "m", Host: "there", Log: slog.New(slog.DiscardHandler), Driver: fake.New(fake.Options{Nodes: fake.Machine(1)}), Connected: func() {
		select {
		case connected <- struct{}{}:
		default:
		}
	}}
	if err := json.Unmarshal(raw, &a.Join); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	<-connected
	s.stop()
	if log := s.log.String(); strings.Contains(log, "requests interrupted") {
		t.Error(log)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
