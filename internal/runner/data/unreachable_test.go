package data

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth"
)

// TestUnreachable: errors of connections are told without the words of Go's packages.
func TestUnreachable(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, tt := range []struct {
		err  error
		want string
	}{
		{dial(&net.DNSError{Err: "no such host", Name: "h", IsNotFound: true}), "h:1 cannot be reached: there is no such host"},
		{dial(&net.DNSError{Err: "server misbehaving", Name: "h"}), "h:1 cannot be reached: its address cannot be looked up"},
		{dial(syscall.ECONNREFUSED), "h:1 cannot be reached: connection refused: no server listens there"},
		{&tls.CertificateVerificationError{Err: errors.New("x509: unknown")}, "h:1 cannot be reached: its certificate is not trusted by this machine"},
		{io.ErrUnexpectedEOF, "unexpected EOF"},
	} {
		err := unreachable("h:1", tt.err)
		if berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), tt.want) || !errors.Is(err, tt.err) {
			t.Errorf("%v: %v, want %q", tt.err, err, tt.want)
		}
	}
}
