// Package kubeconfig reads the files in which kubectl keeps how clusters are reached, as far as a
// server can use them: it has neither the user's files nor the programs that some of them name.
package kubeconfig

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/berthml/berth"
)

// Cluster is how one cluster is reached, and as whom.
type Cluster struct {
	Server     string // https://HOST[:PORT][/PATH]
	ServerName string // that its certificate has, when it is not the host
	CA         []byte // PEM; empty: those of the machine
	Cert, Key  []byte // PEM; empty: none
	Token      string
	Namespace  string // that the context names
}

// file is the part of a kubeconfig that is read. Members that change how a cluster is reached, and
// that cannot be honoured, are read to be refused.
type file struct {
	Current  string            `yaml:"current-context"`
	Contexts []named[context]  `yaml:"contexts"`
	Clusters []named[cluster]  `yaml:"clusters"`
	Users    []named[identity] `yaml:"users"`
}

type named[T any] struct {
	Name    string `yaml:"name"`
	Context T      `yaml:"context,omitempty"`
	Cluster T      `yaml:"cluster,omitempty"`
	User    T      `yaml:"user,omitempty"`
}

type context struct {
	Cluster   string `yaml:"cluster"`
	User      string `yaml:"user"`
	Namespace string `yaml:"namespace,omitempty"`
}

type cluster struct {
	Server     string `yaml:"server"`
	ServerName string `yaml:"tls-server-name,omitempty"`
	CAFile     string `yaml:"certificate-authority,omitempty"`
	CA         string `yaml:"certificate-authority-data,omitempty"`
	Insecure   bool   `yaml:"insecure-skip-tls-verify,omitempty"`
	Proxy      string `yaml:"proxy-url,omitempty"`
}

type identity struct {
	CertFile  string    `yaml:"client-certificate,omitempty"`
	Cert      string    `yaml:"client-certificate-data,omitempty"`
	KeyFile   string    `yaml:"client-key,omitempty"`
	Key       string    `yaml:"client-key-data,omitempty"`
	Token     string    `yaml:"token,omitempty"`
	TokenFile string    `yaml:"tokenFile,omitempty"`
	Username  string    `yaml:"username,omitempty"`
	Password  string    `yaml:"password,omitempty"`
	As        string    `yaml:"as,omitempty"`
	Exec      yaml.Node `yaml:"exec,omitempty"`
	Provider  yaml.Node `yaml:"auth-provider,omitempty"`
}

// parts are the cluster and the user of one context of a file.
type parts struct {
	name    string
	context context
	cluster cluster
	user    identity
}

// read finds a context, or the current one when want is empty.
func read(text []byte, want string) (p parts, err error) {
	var f file
	if err := yaml.Unmarshal(text, &f); err != nil {
		return p, berth.Errorf(berth.Invalid, "the kubeconfig cannot be read: it is not YAML as kubectl writes it")
	}
	p.name = want
	if p.name == "" {
		p.name = f.Current
	}
	if p.name == "" && len(f.Contexts) == 1 {
		p.name = f.Contexts[0].Name
	}
	var names []string
	found := false
	for _, c := range f.Contexts {
		names = append(names, c.Name)
		if c.Name == p.name {
			p.context, found = c.Context, true
		}
	}
	if !found {
		return p, berth.Errorf(berth.Invalid, "the kubeconfig has no context %q; it has: %s", p.name, strings.Join(names, ", "))
	}
	found = false
	for _, c := range f.Clusters {
		if c.Name == p.context.Cluster {
			p.cluster, found = c.Cluster, true
		}
	}
	if !found {
		return p, berth.Errorf(berth.Invalid, "the kubeconfig has no cluster %q, which its context %s names", p.context.Cluster, p.name)
	}
	for _, u := range f.Users {
		if u.Name == p.context.User {
			p.user = u.User
		}
	}
	return p, p.check()
}

// check refuses what a server could not or must not do.
func (p parts) check() error {
	u, err := url.Parse(p.cluster.Server)
	refuse := func(format string, args ...any) error {
		return berth.Errorf(berth.Invalid, "context %s of the kubeconfig %s", p.name, fmt.Sprintf(format, args...))
	}
	const instead = "; use one with a token of a service account, which `berth compute attach --print-rbac` shows how to make"
	switch {
	case err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return refuse("has the server %q; it must be https://HOST[:PORT]", p.cluster.Server)
	case p.cluster.Insecure:
		return refuse("does not check the certificate of the cluster (insecure-skip-tls-verify); name its authority in certificate-authority-data")
	case p.cluster.Proxy != "":
		return refuse("reaches the cluster through a proxy (proxy-url), which the server does not use")
	case !p.user.Exec.IsZero():
		return refuse("logs in by running a program (exec), and the server does not run it" + instead)
	case !p.user.Provider.IsZero():
		return refuse("logs in by a plug-in of kubectl (auth-provider), which the server does not have" + instead)
	case p.user.Username != "" || p.user.Password != "":
		return refuse("logs in by a password, which clusters do not accept any more" + instead)
	case p.user.As != "":
		return refuse("acts as somebody else (as); name their own token or certificate")
	}
	return nil
}

// Parse reads how the cluster of a context is reached, or of the current one when want is empty. It
// reads no other file.
func Parse(text []byte, want string) (c Cluster, err error) {
	p, err := read(text, want)
	if err != nil {
		return c, err
	}
	for member, path := range map[string]string{
		"certificate-authority": p.cluster.CAFile, "client-certificate": p.user.CertFile, "client-key": p.user.KeyFile, "tokenFile": p.user.TokenFile,
	} {
		if path != "" {
			return c, berth.Errorf(berth.Invalid, "context %s of the kubeconfig names a file (%s), and the server does not read files of others; `kubectl config view --flatten --minify --raw` writes a kubeconfig without", p.name, member)
		}
	}
	c = Cluster{Server: strings.TrimSuffix(p.cluster.Server, "/"), ServerName: p.cluster.ServerName, Token: strings.TrimSpace(p.user.Token), Namespace: p.context.Namespace}
	for _, x := range []struct {
		member, from string
		to           *[]byte
	}{
		{"certificate-authority-data", p.cluster.CA, &c.CA}, {"client-certificate-data", p.user.Cert, &c.Cert}, {"client-key-data", p.user.Key, &c.Key},
	} {
		if *x.to, err = base64.StdEncoding.DecodeString(x.from); err != nil {
			return c, berth.Errorf(berth.Invalid, "%s of context %s of the kubeconfig is not base64", x.member, p.name)
		}
	}
	if c.Token == "" && len(c.Cert) == 0 {
		return c, berth.Errorf(berth.Invalid, "context %s of the kubeconfig has neither a token nor a client certificate", p.name)
	}
	return c, nil
}

// Single is a kubeconfig with one context of another, or its current one when want is empty, and
// with the contents of the files it names, whose paths are relative to dir.
func Single(text []byte, want, dir string) ([]byte, error) {
	p, err := read(text, want)
	if err != nil {
		return nil, err
	}
	load := func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			err = berth.Errorf(berth.Invalid, "context %s of the kubeconfig: %w", p.name, err)
		}
		return b, err
	}
	for _, x := range []struct{ path, to *string }{
		{&p.cluster.CAFile, &p.cluster.CA}, {&p.user.CertFile, &p.user.Cert}, {&p.user.KeyFile, &p.user.Key},
	} {
		if *x.path != "" && *x.to == "" {
			b, err := load(*x.path)
			if err != nil {
				return nil, err
			}
			*x.to = base64.StdEncoding.EncodeToString(b)
		}
		*x.path = ""
	}
	if p.user.TokenFile != "" && p.user.Token == "" {
		b, err := load(p.user.TokenFile)
		if err != nil {
			return nil, err
		}
		p.user.Token = strings.TrimSpace(string(b))
	}
	p.user.TokenFile = ""
	return p.write()
}

// write writes the parts as a kubeconfig of their own.
func (p parts) write() ([]byte, error) {
	p.context.Cluster, p.context.User = "cluster", "user"
	return yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": p.name,
		"contexts": []any{map[string]any{"name": p.name, "context": p.context}},
		"clusters": []any{map[string]any{"name": "cluster", "cluster": p.cluster}},
		"users":    []any{map[string]any{"name": "user", "user": p.user}},
	})
}
