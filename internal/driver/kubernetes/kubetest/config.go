//go:build linux

package kubetest

// The configuration of the components; words between @ are filled in.
const (
	containerdToml = `version = 2
root = "@DIR@/store"
state = "@DIR@/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[grpc]
  address = "@DIR@/c.sock"
[ttrpc]
  address = "@DIR@/c.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  stream_server_address = "127.0.0.1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "@DIR@/cni"
`
	bridgeConf = `{"cniVersion":"1.0.0","name":"pods","plugins":[
 {"type":"bridge","bridge":"@BRIDGE@","isGateway":true,"ipMasq":false,"hairpinMode":true,
  "ipam":{"type":"host-local","ranges":[[{"subnet":"10.244.7.0/24"}]],"dataDir":"@DIR@/ipam","routes":[{"dst":"0.0.0.0/0"}]}}]}
`
	kubeletYaml = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: @PORT@
healthzBindAddress: 127.0.0.1
healthzPort: @HEALTH@
readOnlyPort: 0
containerRuntimeEndpoint: unix://@DIR@/c.sock
cgroupDriver: cgroupfs
cgroupRoot: /@GROUP@
failCgroupV1: false
failSwapOn: false
cgroupsPerQOS: true
enforceNodeAllocatable: [pods]
localStorageCapacityIsolation: true
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: @DIR@/ca.crt}}
authorization: {mode: AlwaysAllow}
tlsCertFile: @DIR@/kubelet-server.crt
tlsPrivateKeyFile: @DIR@/kubelet-server.key
resolvConf: ""
clusterDNS: [` + Gateway + `]
clusterDomain: cluster.local
podLogsDir: @DIR@/podlogs
staticPodPath: @DIR@/manifests
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
maxPods: 110
serializeImagePulls: false
syncFrequency: 10s
nodeStatusUpdateFrequency: 5s
shutdownGracePeriod: 0s
`
	schedulerYaml = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: @DIR@/sched.kubeconfig, qps: 500, burst: 1000}
leaderElection: {leaderElect: false}
`
)
