package kubernetes

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/berthml/berth"
)

// rule is a kind of object of the namespace and what the driver does with it.
type rule struct {
	group, resource string
	verbs           []string
}

// rules are all that the driver needs in its namespace.
var rules = []rule{
	{"batch", "jobs", []string{"create", "get", "list", "patch", "delete"}},
	{"", "pods", []string{"list", "delete", "deletecollection"}},
	{"", "secrets", []string{"create"}},
	{"", "services", []string{"create"}}, // of jobs of several nodes
	{"", "events", []string{"list"}},
}

// moreRules are what it needs besides for pods that cannot reach the server, to reach ports of pods
// that it cannot reach, and for Kueue.
var moreRules = []rule{
	{"", "pods/exec", []string{"get", "create"}},
	{"", "pods/portforward", []string{"get", "create"}},
	{kueueGroup, "workloads", []string{"list"}}, // why Kueue lets a job wait
}

// mayAll refuses an account that may not do all that the driver needs.
func (c *client) mayAll(ctx context.Context) error {
	var mu sync.Mutex
	var missing []string
	var failed error
	var wg sync.WaitGroup
	for _, r := range rules {
		for _, verb := range r.verbs {
			wg.Go(func() {
				ok, err := c.may(ctx, verb, r)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed = err
				} else if !ok {
					missing = append(missing, verb+" "+r.resource)
				}
			})
		}
	}
	wg.Wait()
	if failed != nil || len(missing) == 0 {
		return failed
	}
	return berth.Errorf(berth.Denied, "its account may not %s in namespace %s; `berth compute attach --print-rbac` prints what it needs", strings.Join(missing, ", "), c.namespace)
}

// may asks whether the account may do something in the namespace.
func (c *client) may(ctx context.Context, verb string, r rule) (bool, error) {
	in := object{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": object{"resourceAttributes": object{"namespace": c.namespace, "verb": verb, "group": r.group, "resource": r.resource}},
	}
	var out struct{ Status struct{ Allowed bool } }
	err := c.do(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", nil, in, &out)
	return out.Status.Allowed, err
}

// RBAC is the manifest of an account with the least that a compute needs in a namespace, with how a
// kubeconfig for it is made.
func RBAC(namespace string) string {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(rbacHead, "@NAMESPACE@", namespace))
	write := func(rules []rule) {
		for _, r := range rules {
			b.WriteString(`- {apiGroups: ["` + r.group + `"], resources: [` + r.resource + `], verbs: [` + strings.Join(r.verbs, ", ") + "]}\n")
		}
	}
	write(rules)
	b.WriteString("# Without these, pods have to reach the server at its address, and it theirs; and the reasons of Kueue are not shown.\n")
	write(moreRules)
	b.WriteString(strings.ReplaceAll(rbacTail, "@NAMESPACE@", namespace))
	return b.String()
}

const rbacHead = `# What a compute of Berth needs in the namespace @NAMESPACE@. Save this as berth.yaml, then:
#
#   kubectl create namespace @NAMESPACE@        # unless it is there
#   kubectl apply -f berth.yaml
#   kubectl config view --minify --flatten --raw > berth.kubeconfig
#   kubectl --kubeconfig berth.kubeconfig config set-credentials berth --token="$(kubectl -n @NAMESPACE@ get secret berth-token -o jsonpath='{.data.token}' | base64 -d)"
#   kubectl --kubeconfig berth.kubeconfig config set-context --current --user=berth --namespace=@NAMESPACE@
#   berth compute attach -n NAME --type kubernetes --kubeconfig berth.kubeconfig --namespace @NAMESPACE@
apiVersion: v1
kind: ServiceAccount
metadata: {name: berth, namespace: @NAMESPACE@}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata: {name: berth-token, namespace: @NAMESPACE@, annotations: {kubernetes.io/service-account.name: berth}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: berth, namespace: @NAMESPACE@}
rules:
`

const rbacTail = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: berth, namespace: @NAMESPACE@}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: berth}
subjects: [{kind: ServiceAccount, name: berth, namespace: @NAMESPACE@}]
---
# Without the rest, the CPUs and memory of the nodes are not known.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: berth-@NAMESPACE@}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: berth-@NAMESPACE@}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: berth-@NAMESPACE@}
subjects: [{kind: ServiceAccount, name: berth, namespace: @NAMESPACE@}]
`
