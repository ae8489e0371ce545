package data

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"

	"github.com/berthml/berth"
)

// unreachable is the error of a request that no server answered, in words for people.
func unreachable(host string, err error) error {
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var op *net.OpError
	var why string
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		why = "there is no such host"
	case errors.As(err, &dns):
		why = "its address cannot be looked up"
	case errors.As(err, &certificate):
		why = "its certificate is not trusted by this machine"
	case errors.Is(err, syscall.ECONNREFUSED):
		why = "connection refused: no server listens there"
	case errors.As(err, &op) && op.Timeout():
		why = "it does not answer"
	default:
		return berth.Errorf(berth.Unavailable, "%w", err)
	}
	return &berth.Error{Code: berth.Unavailable, Msg: host + " cannot be reached: " + why, Err: err}
}
