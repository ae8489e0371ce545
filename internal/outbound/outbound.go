// Package outbound says to which hosts the server sends requests because a user named them: those
// that its operator has listed.
package outbound

import (
	"net"
	"net/url"
	"slices"

	"github.com/berthml/berth"
)

// Check refuses an address of a host that is not listed, and one over which what the server sends
// could be read by everybody on the way: http to another machine, unless it is listed as
// http://HOST:PORT. Hosts are HOST, HOST:PORT or such an address.
func Check(hosts []string, address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return berth.Errorf(berth.Invalid, "%q is not a URL", address)
	}
	if slices.Contains(hosts, u.Scheme+"://"+u.Host) {
		return nil
	}
	if !slices.Contains(hosts, u.Host) && !slices.Contains(hosts, u.Hostname()) {
		return berth.Errorf(berth.Denied, "the server sends requests only where its operator has listed it; an administrator can add %s to allow: hosts: in berth.yaml and start the server anew", u.Host)
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme != "https" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return berth.Errorf(berth.Denied, "without TLS the credentials would be readable on the way to %s: use https, or have an administrator add %s://%s to allow: hosts: in berth.yaml and start the server anew",
			u.Host, u.Scheme, u.Host)
	}
	return nil
}
