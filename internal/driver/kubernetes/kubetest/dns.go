//go:build linux

package kubetest

import (
	"encoding/binary"
	"encoding/json"
	"net"
	"strings"
	"sync"
)

// names answers questions of pods for the names of pods of headless services, by what the cluster
// says of their endpoints.
type names struct {
	c    *Cluster
	conn net.PacketConn

	mu    sync.Mutex
	known map[string]net.IP
}

// startNames serves the cluster's names at the gateway.
func (c *Cluster) startNames() error {
	conn, err := net.ListenPacket("udp4", Gateway+":53") //nolint:noctx // it returns at once
	if err != nil {
		return err
	}
	c.names = &names{c: c, conn: conn, known: map[string]net.IP{}}
	go c.names.serve()
	return nil
}

func (n *names) serve() {
	buf := make([]byte, 1500)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		q := append([]byte(nil), buf[:size]...)
		go func() {
			if a := n.answer(q); a != nil {
				_, _ = n.conn.WriteTo(a, from) // who asked asks again
			}
		}()
	}
}

// answer is the answer to one question, nil when it cannot be read.
func (n *names) answer(q []byte) []byte {
	if len(q) < 17 || binary.BigEndian.Uint16(q[4:]) != 1 {
		return nil
	}
	var labels []string
	at := 12
	for at < len(q) && q[at] != 0 {
		end := at + 1 + int(q[at])
		if end >= len(q) {
			return nil
		}
		labels = append(labels, strings.ToLower(string(q[at+1:end])))
		at = end
	}
	if at+5 > len(q) {
		return nil
	}
	kind := binary.BigEndian.Uint16(q[at+1:])
	question := q[12 : at+5]
	const response, authority, recursion, noName = 1 << 15, 1 << 10, 1 << 7, 3
	flags, count := uint16(response|authority|recursion), uint16(0)
	var record []byte
	switch ip := n.lookup(labels); {
	case ip == nil:
		flags |= noName
	case kind == 1:
		count = 1
		record = append([]byte{0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4}, ip...)
	}
	out := make([]byte, 12)
	copy(out, q[:2])
	for i, v := range []uint16{flags, 1, count, 0, 0} {
		binary.BigEndian.PutUint16(out[2+2*i:], v)
	}
	return append(append(out, question...), record...)
}

// lookup finds HOST.SERVICE.NAMESPACE.svc.cluster.local.
func (n *names) lookup(labels []string) net.IP {
	if len(labels) != 6 || strings.Join(labels[3:], ".") != "svc.cluster.local" {
		return nil
	}
	name := strings.Join(labels, ".")
	n.mu.Lock()
	defer n.mu.Unlock()
	if ip := n.known[name]; ip != nil {
		return ip
	}
	out, err := n.c.Kubectl("get", "endpointslices", "-n", labels[2], "-l", "kubernetes.io/service-name="+labels[1], "-o", "json")
	if err != nil {
		return nil
	}
	var all struct {
		Items []struct {
			Endpoints []struct {
				Hostname  string   `json:"hostname"`
				Addresses []string `json:"addresses"`
			} `json:"endpoints"`
		} `json:"items"`
	}
	if json.Unmarshal([]byte(out), &all) != nil {
		return nil
	}
	for _, slice := range all.Items {
		for _, e := range slice.Endpoints {
			if e.Hostname == labels[0] && len(e.Addresses) > 0 {
				n.known[name] = net.ParseIP(e.Addresses[0]).To4()
			}
		}
	}
	return n.known[name]
}
