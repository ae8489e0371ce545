// Package config reads the server's one file: what is decided at the edge and passed inward as
// values.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/berthml/berth"
)

// Config is everything a server is told. Computes, users and quotas are not here: they are API
// resources.
type Config struct {
	// Home is the folder that holds everything the server owns. It is not read from the file.
	Home string `yaml:"-"`
	// Name tells the servers of a home apart; empty is the first, or only one. It is not read from
	// the file.
	Name string `yaml:"-"`
	// Listen is HOST:PORT of the HTTPS front door. Port 0 takes a free port and keeps it.
	Listen string `yaml:"listen"`
	// Advertise is the URL clients use when it is not the listen address, for shared servers.
	Advertise string `yaml:"advertise"`
	// TLSCertificate and TLSKey are files of a certificate of another authority for Advertise. ACME
	// has the server get one from the authority at ACMEDirectory; empty is Let's Encrypt.
	TLSCertificate string `yaml:"tls_certificate"`
	TLSKey         string `yaml:"tls_key"`
	ACME           bool   `yaml:"acme"`
	ACMEEmail      string `yaml:"acme_email"`
	ACMEDirectory  string `yaml:"acme_directory"`
	// BlobZone serves blobs at https://ACCOUNT.blob.ZONE instead of below the one address; it needs
	// wildcard DNS.
	BlobZone string `yaml:"blob_zone"`
	// EndpointZone has online endpoints answer also at https://ENDPOINT.ZONE: a domain with
	// wildcard DNS, and a port where clients have to name one.
	EndpointZone string `yaml:"endpoint_zone"`
	// Database is sqlite:PATH or postgres://…; empty is berth.db in Home.
	Database string `yaml:"database"`
	// Blobs is where the contents of files are kept: empty is the folder blobs in Home, else
	// s3://BUCKET/PREFIX at BlobsEndpoint (empty is Amazon) in BlobsRegion, with the key in the
	// file blobs.key of Home. The folder is then a cache of BlobsCache bytes.
	Blobs         string `yaml:"blobs"`
	BlobsEndpoint string `yaml:"blobs_endpoint"`
	BlobsRegion   string `yaml:"blobs_region"`
	BlobsCache    int64  `yaml:"blobs_cache_bytes"`
	// Subscription, Group, Workspace and Location name what exists on first start.
	Subscription string `yaml:"subscription"`
	Group        string `yaml:"resource_group"`
	Workspace    string `yaml:"workspace"`
	Location     string `yaml:"location"`
	// Slots is how many tasks run at once on the local target.
	Slots int `yaml:"slots"`
	// LocalJobs says whether jobs run on the machine itself, LocalPerUser how many of one user at
	// once (0 is no limit), and LocalPrice what an hour of the machine costs in LocalCurrency, of
	// which a job pays the part of its slot.
	LocalJobs     bool    `yaml:"local_jobs"`
	LocalPerUser  int     `yaml:"local_jobs_per_user"`
	LocalPrice    float64 `yaml:"local_price_per_hour"`
	LocalCurrency string  `yaml:"local_currency"`
	// QuotaDefault is how many vCPUs of a family of sizes a workspace may have where no limit says
	// anything; 0 is no end.
	QuotaDefault int `yaml:"quota_default_vcpus"`
	// StrictSizes refuses computes of a size larger than the machine instead of overcommitting it.
	StrictSizes bool `yaml:"strict_sizes"`
	// InstanceDisk is how large the disk of a compute instance is, in bytes; 0 is what the machine
	// has.
	InstanceDisk int64 `yaml:"instance_disk_bytes"`
	// ImagesOnHost lets jobs that name only an image run on the host when there is no container
	// engine.
	ImagesOnHost bool `yaml:"images_on_host"`
	// Allow is what users who are not administrators may name of this machine; nothing by default.
	Allow Allow `yaml:"allow"`
	// ContainerEngine is the Docker API endpoint: empty finds one, "none" uses none.
	ContainerEngine string `yaml:"container_engine"`
	// Slurm lets users attach the Slurm cluster whose commands work for this server's account:
	// "true", or "trusted" where its nodes may see Home. Empty and "false" do not.
	Slurm string `yaml:"slurm"`
	// Kubernetes lets users attach clusters by kubeconfigs of their own: "true", or
	// "in-cluster/NAMESPACE" where they may also use that namespace with the service account of the
	// pod that this server runs in. Empty and "false" do not.
	Kubernetes string `yaml:"kubernetes"`
	// SSHAgent lets administrators attach machines by keys that an SSH agent keeps for this server:
	// the path of its socket. Load puts the one in SSH_AUTH_SOCK in the place of "true". Empty and
	// "false" do not.
	SSHAgent string `yaml:"ssh_agent"`
	// EnvironmentCache is how many bytes of built environments are kept, and Environments where.
	EnvironmentCache int64  `yaml:"environment_cache_bytes"`
	Environments     string `yaml:"environments"`
	// DataCache is how many bytes of code and inputs of tasks are kept on this machine beside the
	// server's own copies; 0 is a fifth of the disk.
	DataCache int64 `yaml:"data_cache_bytes"`
	// TrackingMemory is how many bytes of memory may be taken by what is known of runs, models and
	// series of points; 0 is a quarter of the machine's.
	TrackingMemory int64 `yaml:"tracking_memory_bytes"`
	// WorkspaceStorage is how many bytes a workspace may store before it takes no more jobs; 0 is
	// no end. A tag of the workspace says otherwise.
	WorkspaceStorage int64 `yaml:"workspace_storage_bytes"`
	// KeepOutputs, KeepArtifacts and KeepLogs are for how many days what jobs left is kept after
	// they ended; 0 is for ever. A workspace may say otherwise by a tag.
	KeepOutputs   int `yaml:"keep_outputs_days"`
	KeepArtifacts int `yaml:"keep_artifacts_days"`
	KeepLogs      int `yaml:"keep_logs_days"`
	// KeepCode, KeepModels and KeepEnvironments are for how many days versions are kept that
	// nothing refers to.
	KeepCode         int `yaml:"keep_code_days"`
	KeepModels       int `yaml:"keep_models_days"`
	KeepEnvironments int `yaml:"keep_environments_days"`
	// KeepMeters is for how many days each use of a node is kept before it becomes part of the sums
	// of its day, KeepEvents for how many days events are kept; 0 is for ever.
	KeepMeters int `yaml:"keep_meters_days"`
	KeepEvents int `yaml:"keep_events_days"`
	// DeletedRunDays is for how many days runs and logged models of MLflow are kept that were
	// deleted; 0 keeps them for ever.
	DeletedRunDays int `yaml:"deleted_run_days"`
}

// Keep is for how many days each kind of what is stored is kept.
func (c Config) Keep() map[string]int {
	return map[string]int{
		berth.StorageOutputs: c.KeepOutputs, berth.StorageArtifacts: c.KeepArtifacts, berth.StorageLogs: c.KeepLogs,
		berth.StorageCode: c.KeepCode, berth.StorageModels: c.KeepModels, berth.StorageEnvironments: c.KeepEnvironments,
	}
}

// Allow is the part of the machine that users may reach by name.
type Allow struct {
	// Paths are folders whose files may be inputs, outputs and assets, as file: URLs.
	Paths []string `yaml:"paths"`
	// DockerArgs are options that docker_args of jobs may have: NAME=VALUE, or NAME for any value.
	DockerArgs []string `yaml:"docker_args"`
	// Hosts are hosts that are not Azure's, HOST or HOST:PORT, to which the server sends requests
	// for service principals of datastores, to web servers with credentials and to slurmrestd.
	// http://HOST:PORT allows one without TLS.
	Hosts []string `yaml:"hosts"`
}

// Default is the configuration of a server nobody configured.
func Default(home string) Config {
	return Config{
		Home:             home,
		Listen:           "127.0.0.1:0",
		Subscription:     "00000000-0000-0000-0000-000000000000",
		Group:            "berth",
		Workspace:        "default",
		Location:         "local",
		Slots:            max(2, runtime.NumCPU()),
		LocalJobs:        true,
		LocalCurrency:    "USD",
		EnvironmentCache: 20 << 30,
		BlobsCache:       20 << 30,
		InstanceDisk:     120_000_000_000,
		KeepMeters:       90,
		KeepEvents:       30,
	}
}

// FileName is the name of the configuration file in a home.
const FileName = "berth.yaml"

// Load is the default configuration with what HOME/berth.yaml, or the file that BERTH_CONFIG names,
// says on top. An unknown key is an error.
func Load(home string) (Config, error) {
	c := Default(home)
	c.Environments = os.Getenv("BERTH_ENV_CACHE")
	path := cmp.Or(os.Getenv("BERTH_CONFIG"), filepath.Join(home, FileName))
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("read configuration: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, berth.Errorf(berth.Invalid, "%s: %s", path, plainly(err))
	}
	if socket := os.Getenv("SSH_AUTH_SOCK"); c.SSHAgent == "true" && filepath.IsAbs(socket) {
		c.SSHAgent = socket
	}
	return c, c.Check()
}

// domain is the form of a DNS name of several labels, and perhaps a port.
const domain = `^([a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?\.)+[a-zA-Z]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?(:[0-9]{1,5})?$`

// Check says what is wrong with c.
func (c Config) Check() error {
	if c.DeletedRunDays < 0 || c.DeletedRunDays > 36500 {
		return berth.Errorf(berth.Invalid, "deleted_run_days: must be from 0 to 36500 days, not %d", c.DeletedRunDays)
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return berth.Errorf(berth.Invalid, "listen: %q is not HOST:PORT", c.Listen)
	}
	if c.Advertise != "" {
		u, err := url.Parse(c.Advertise)
		if err != nil || u.Scheme != "https" || u.Host == "" || (u.Path != "" && u.Path != "/") {
			return berth.Errorf(berth.Invalid, "advertise: %q is not https://HOST[:PORT]", c.Advertise)
		}
	}
	if err := c.checkTLS(); err != nil {
		return err
	}
	if c.EndpointZone != "" && (!regexp.MustCompile(domain).MatchString(c.EndpointZone) || len(c.EndpointZone) > 180) {
		return berth.Errorf(berth.Invalid, "endpoint_zone: %q is not DOMAIN[:PORT] such as score.example.org", c.EndpointZone)
	}
	if c.Blobs != "" && !strings.HasPrefix(c.Blobs, "s3://") {
		return berth.Errorf(berth.Invalid, "blobs: %q is not s3://BUCKET/PREFIX", c.Blobs)
	}
	if c.Blobs == "" && (c.BlobsEndpoint != "" || c.BlobsRegion != "") {
		return berth.Errorf(berth.Invalid, "blobs_endpoint and blobs_region are for a bucket: set blobs to s3://BUCKET/PREFIX")
	}
	if c.BlobsCache < 1<<20 {
		return berth.Errorf(berth.Invalid, "blobs_cache_bytes: must be at least 1 MiB, not %d", c.BlobsCache)
	}
	if c.Name != "" {
		if err := berth.CheckName("server", c.Name); err != nil {
			return err
		}
	}
	if namespace, own := strings.CutPrefix(c.Kubernetes, "in-cluster/"); c.Kubernetes != "" && c.Kubernetes != "true" && c.Kubernetes != "false" && (!own || namespace == "") {
		return berth.Errorf(berth.Invalid, "kubernetes: %q is not true, false or in-cluster/NAMESPACE", c.Kubernetes)
	}
	if c.SSHAgent != "" && c.SSHAgent != "true" && c.SSHAgent != "false" && !filepath.IsAbs(c.SSHAgent) {
		return berth.Errorf(berth.Invalid, "ssh_agent: %q is not true, false or the full path of an agent's socket", c.SSHAgent)
	}
	if c.Slots < 1 {
		return berth.Errorf(berth.Invalid, "slots: must be at least 1, not %d", c.Slots)
	}
	if c.LocalPerUser < 0 {
		return berth.Errorf(berth.Invalid, "local_jobs_per_user: must not be negative (%d); 0 means no limit", c.LocalPerUser)
	}
	if !(c.LocalPrice >= 0) || math.IsInf(c.LocalPrice, 0) {
		return berth.Errorf(berth.Invalid, "local_price_per_hour: %v is not a price; 0 means free", c.LocalPrice)
	}
	if len(c.LocalCurrency) != 3 || strings.ToUpper(c.LocalCurrency) != c.LocalCurrency {
		return berth.Errorf(berth.Invalid, "local_currency: %q is not a code of three capital letters such as USD", c.LocalCurrency)
	}
	if c.QuotaDefault < 0 {
		return berth.Errorf(berth.Invalid, "quota_default_vcpus: must not be negative (%d); 0 means no limit", c.QuotaDefault)
	}
	if c.TrackingMemory < 0 {
		return berth.Errorf(berth.Invalid, "tracking_memory_bytes: must not be negative (%d); 0 means a quarter of the machine's memory", c.TrackingMemory)
	}
	if c.WorkspaceStorage < 0 {
		return berth.Errorf(berth.Invalid, "workspace_storage_bytes: must not be negative (%d); 0 means no limit", c.WorkspaceStorage)
	}
	for kind, days := range c.Keep() {
		if days < 0 {
			return berth.Errorf(berth.Invalid, "keep_%s_days: must not be negative (%d); 0 means forever", kind, days)
		}
	}
	for kind, days := range map[string]int{"meters": c.KeepMeters, "events": c.KeepEvents} {
		if days < 0 || days > 36500 {
			return berth.Errorf(berth.Invalid, "keep_%s_days: must be from 0 to 36500 days, not %d; 0 means forever", kind, days)
		}
	}
	for _, p := range c.Allow.Paths {
		if !filepath.IsAbs(p) {
			return berth.Errorf(berth.Invalid, "allow: paths: %q is not a full path", p)
		}
	}
	for _, a := range c.Allow.DockerArgs {
		if !strings.HasPrefix(a, "-") {
			return berth.Errorf(berth.Invalid, "allow: docker_args: %q is not a docker run option such as --cap-add=SYS_PTRACE", a)
		}
	}
	for _, n := range []struct{ field, value string }{
		{"subscription", c.Subscription}, {"resource_group", c.Group}, {"workspace", c.Workspace},
	} {
		if err := berth.CheckName(n.field, n.value); err != nil {
			return err
		}
	}
	return nil
}

// RunDir is where a server keeps what is its own and not its home's: its socket, its lock and what
// it tells clients of its machine.
func (c Config) RunDir() string { return filepath.Join(c.Home, "run", c.Name) }

// Local is on which terms jobs run on the machine itself.
func (c Config) Local() berth.LocalTerms {
	return berth.LocalTerms{Off: !c.LocalJobs, PerUser: c.LocalPerUser, Price: c.LocalPrice, Currency: c.LocalCurrency, Slots: c.Slots}
}

// DatabaseURL is where the database is.
func (c Config) DatabaseURL() string {
	if c.Database != "" {
		return c.Database
	}
	return "sqlite:" + filepath.Join(c.Home, "berth.db")
}

// DefaultWorkspace is the workspace made on first start.
func (c Config) DefaultWorkspace() berth.Workspace {
	return berth.Workspace{Subscription: c.Subscription, Group: c.Group, Name: c.Workspace}
}
