package worker_test

import (
	"net"
	"strings"
	"testing"
)

// TestImagePortTaken: where a server ends because its one port is in use, as it is while another
// version of it runs, the log ends with that reason.
func TestImagePortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for at, want := range map[string]bool{port: true, "1": false} {
		_, output := begin(t, "BERTH_COMMAND=echo cannot listen; exit 7", "BERTH_IMAGE_PORT="+at)
		last := ""
		for line := range output {
			last = line
		}
		if strings.Contains(last, "port "+at+" was in use on this machine") != want {
			t.Errorf("at port %s the last line is %q", at, last)
		}
	}
}
