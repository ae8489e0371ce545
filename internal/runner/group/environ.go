package group

import (
	"encoding/json"
	"net"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// environ is what a process learns of its peers. MPI's ranks learn of theirs from mpirun.
func (s *Spec) environ(p berth.Process) []string {
	g := &s.Group
	master := g.Nodes[0].Address
	num := strconv.Itoa
	hosts := make([]string, len(g.Nodes))
	for i, n := range g.Nodes {
		hosts[i] = n.Address
	}
	env := []string{
		"AZUREML_NODE_COUNT=" + num(len(g.Nodes)),
		"AZ_BATCHAI_NUM_NODES=" + num(len(g.Nodes)),
		"AZ_BATCH_HOST_LIST=" + strings.Join(hosts, ","),
		"AZ_BATCH_MASTER_NODE=" + net.JoinHostPort(master, num(g.Port)),
		"AZ_BATCHAI_MPI_MASTER_NODE=" + master,
		"NODE_RANK=" + num(g.Node),
	}
	if strings.EqualFold(g.Type, "mpi") {
		return env
	}
	env = append(
		env,
		"MASTER_ADDR="+master,
		"MASTER_PORT="+num(g.Port),
		"WORLD_SIZE="+num(g.World),
		"RANK="+num(p.Rank),
		"LOCAL_RANK="+num(p.Local),
		"LOCAL_WORLD_SIZE="+num(len(g.Processes)),
	)
	if strings.EqualFold(g.Type, "tensorflow") {
		env = append(env, "TF_CONFIG="+s.tfConfig(p))
	}
	return env
}

// tfConfig is TensorFlow's description of the cluster: the workers come first, then the parameter
// servers, and each process has a port of its own.
func (s *Spec) tfConfig(p berth.Process) string {
	g := &s.Group
	cluster := map[string][]string{}
	kind := func(rank int) (string, int) {
		if rank < g.World-g.Servers {
			return "worker", rank
		}
		return "ps", rank - (g.World - g.Servers)
	}
	for rank := range g.World {
		k, _ := kind(rank)
		at := net.JoinHostPort(g.Nodes[s.nodeOf(rank)].Address, strconv.Itoa(g.Port+rank))
		cluster[k] = append(cluster[k], at)
	}
	type task struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}
	k, i := kind(p.Rank)
	b, _ := json.Marshal(struct {
		Cluster     map[string][]string `json:"cluster"`
		Task        task                `json:"task"`
		Environment string              `json:"environment"`
	}{cluster, task{k, i}, "cloud"})
	return string(b)
}
