package kubernetes

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kubeconfig"
)

// site is how tasks are run, as the compute's document says.
type site struct {
	// Azure's:
	Namespace           string                  `json:"namespace"`
	DefaultInstanceType string                  `json:"defaultInstanceType"`
	InstanceTypes       map[string]instanceType `json:"instanceTypes"`
	// Ours:
	Context          string       `json:"context"`          // of the kubeconfig; empty is its current one
	Image            string       `json:"image"`            // of tasks whose environment names none
	RunnerImage      string       `json:"runnerImage"`      // brings the program into pods; empty is the task's own
	ImagePullPolicy  string       `json:"imagePullPolicy"`  // Always, IfNotPresent or Never
	ImagePullSecrets []string     `json:"imagePullSecrets"` // names of Secrets in the namespace
	ServiceAccount   string       `json:"serviceAccount"`   // whose token tasks are given; empty gives them none
	PriorityClass    string       `json:"priorityClass"`
	Tolerations      []toleration `json:"tolerations"`
	QueueName        string       `json:"queueName"` // of Kueue
	Tunnel           string       `json:"tunnel"`    // auto, always or never; empty is auto
	// MaxTasks is how many tasks are handed to the cluster at once, running and waiting; 0 is
	// mostTasks.
	MaxTasks int `json:"maxTasks"`
	// Cluster is the last word of the compute's resource id, by which Azure names a cluster.
	Cluster string `json:"-"`
}

type instanceType struct {
	NodeSelector map[string]berth.Scalar `json:"nodeSelector"`
	Resources    struct {
		Requests map[string]berth.Scalar `json:"requests"`
		Limits   map[string]berth.Scalar `json:"limits"`
	} `json:"resources"`
}

type toleration struct {
	Key               string `json:"key,omitempty"`
	Operator          string `json:"operator,omitempty"`
	Value             string `json:"value,omitempty"`
	Effect            string `json:"effect,omitempty"`
	TolerationSeconds *int64 `json:"tolerationSeconds,omitempty"`
}

// mostTasks is how many tasks are handed to a cluster at once, unless the compute says otherwise.
const mostTasks = 1000

var (
	label    = pattern(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	quantity = pattern(`^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i)?$`)
)

// pattern is a regular expression that is compiled when it is first used.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// readSite reads the properties of a compute.
func readSite(document []byte) (site, error) {
	var v struct {
		Properties struct {
			ResourceID string `json:"resourceId"`
			Properties site   `json:"properties"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(document, &v); err != nil {
		return site{}, berth.Errorf(berth.Invalid, "properties: %w", err)
	}
	s := v.Properties.Properties
	s.Cluster = strings.ToLower(path.Base(strings.TrimSuffix(v.Properties.ResourceID, "/")))
	for name, value := range map[string]string{
		"namespace": s.Namespace, "serviceAccount": s.ServiceAccount, "priorityClass": s.PriorityClass, "queueName": s.QueueName,
	} {
		if value != "" && !label().MatchString(value) {
			return s, berth.Errorf(berth.Invalid, "properties.properties.%s %q must be a name of Kubernetes: up to 63 lower-case letters, digits and hyphens", name, value)
		}
	}
	if !slices.Contains([]string{"", "Always", "IfNotPresent", "Never"}, s.ImagePullPolicy) {
		return s, berth.Errorf(berth.Invalid, "properties.properties.imagePullPolicy %q must be Always, IfNotPresent or Never", s.ImagePullPolicy)
	}
	if !slices.Contains([]string{"", "auto", "always", "never"}, s.Tunnel) {
		return s, berth.Errorf(berth.Invalid, "properties.properties.tunnel %q must be auto, always or never", s.Tunnel)
	}
	if s.MaxTasks < 0 {
		return s, berth.Errorf(berth.Invalid, "properties.properties.maxTasks %d must not be negative", s.MaxTasks)
	}
	if s.MaxTasks == 0 {
		s.MaxTasks = mostTasks
	}
	for name, t := range s.InstanceTypes {
		for _, values := range []map[string]berth.Scalar{t.Resources.Requests, t.Resources.Limits} {
			for resource, q := range values {
				if !quantity().MatchString(string(q)) {
					return s, berth.Errorf(berth.Invalid, "properties.properties.instanceTypes.%s: %s %q must be a quantity such as 2, 500m or 16Gi", name, resource, q)
				}
			}
		}
	}
	if _, err := s.instanceType(""); err != nil {
		return s, err
	}
	return s, nil
}

// instanceType finds an instance type, or the default one when name is empty.
func (s site) instanceType(name string) (instanceType, error) {
	if name == "" {
		name = s.DefaultInstanceType
	}
	if name == "" {
		return instanceType{}, nil
	}
	for n, t := range s.InstanceTypes {
		if strings.EqualFold(n, name) {
			return t, nil
		}
	}
	if len(s.InstanceTypes) == 0 {
		return instanceType{}, berth.Errorf(berth.Invalid, "the compute has no instance type %s: it has none; they are in instanceTypes of its properties", name)
	}
	return instanceType{}, berth.Errorf(berth.Invalid, "the compute has no instance type %s; it has: %s", name, strings.Join(slices.Sorted(maps.Keys(s.InstanceTypes)), ", "))
}

// Check refuses a compute's document that could never work, and a change of its namespace, where
// its jobs are.
func Check(old, document []byte) error {
	s, err := readSite(document)
	if err != nil || old == nil {
		return err
	}
	if was, err := readSite(old); err != nil || was.Namespace != s.Namespace || was.Context != s.Context {
		return berth.Errorf(berth.Conflict, "the namespace and the context of a compute cannot be changed; detach it and attach it again")
	}
	return nil
}

// kubeconfigPath is the path of the kubeconfig in a compute's properties.
const kubeconfigPath = "properties.kubeconfig"

// An offer is a cluster that the operator lets computes use without a kubeconfig of their own, in
// one namespace.
type offer struct {
	namespace string
	text      string // the operator's kubeconfig; empty is the server's own service account
}

// offerOf finds what a compute without a kubeconfig may use: the cluster that its resource id
// names, if the operator has put a kubeconfig for it into the home, or the one that the server runs
// in.
func offerOf(s site, home, consent string) (offer, error) {
	if label().MatchString(s.Cluster) {
		b, err := os.ReadFile(filepath.Join(home, "kubernetes", s.Cluster+".kubeconfig"))
		if err == nil {
			k, err := kubeconfig.Parse(b, "")
			return offer{namespace: cmp.Or(k.Namespace, "default"), text: string(b)}, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return offer{}, berth.Errorf(berth.Unavailable, "the kubeconfig of cluster %s on the server cannot be read: %w", s.Cluster, err)
		}
	}
	if namespace, own := strings.CutPrefix(consent, ownPrefix); own {
		return offer{namespace: namespace}, nil
	}
	return offer{}, berth.Errorf(berth.Denied, "the compute has no kubeconfig, and the operator offers none: `kubernetes: in-cluster/NAMESPACE` in berth.yaml lets computes use the service account of the server, and kubernetes/NAME.kubeconfig in its home a cluster whose resource id ends with /NAME")
}

// check refuses what a compute may not choose that uses an account of the operator's: it would
// choose with the rights of that.
func (o offer) check(s site) error {
	if s.Namespace != "" && s.Namespace != o.namespace {
		return berth.Errorf(berth.Denied, "the operator offers this cluster in namespace %s only, not in %s; name that, or give the compute a kubeconfig", o.namespace, s.Namespace)
	}
	for name, set := range map[string]bool{
		"serviceAccount": s.ServiceAccount != "", "imagePullSecrets": len(s.ImagePullSecrets) > 0, "priorityClass": s.PriorityClass != "", "tolerations": len(s.Tolerations) > 0,
	} {
		if set {
			return berth.Errorf(berth.Denied, "properties.properties.%s cannot be set on a compute that uses an account of the operator's; give it a kubeconfig", name)
		}
	}
	return nil
}

// connect makes the client of a compute, from its kubeconfig or from what the operator offers.
func connect(s site, text string, offered offer) (*client, error) {
	own := text == ""
	if own {
		if err := offered.check(s); err != nil {
			return nil, err
		}
		text, s.Namespace, s.Context = offered.text, offered.namespace, ""
	}
	var c *client
	var err error
	if own && text == "" {
		c, err = inCluster()
	} else {
		var k kubeconfig.Cluster
		if k, err = kubeconfig.Parse([]byte(text), s.Context); err == nil {
			c, err = newClient(k)
		}
	}
	if err != nil {
		return nil, err
	}
	if s.Namespace != "" {
		c.namespace = s.Namespace
	}
	if c.namespace == "" {
		c.namespace = "default"
	}
	return c, nil
}
