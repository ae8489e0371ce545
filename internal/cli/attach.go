package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth/internal/driver/kubernetes"
)

// attachVerb is compute attach: create, for what is there already.
func attachVerb(s *session, n noun) *cobra.Command {
	n.options = attachOptions
	cmd := createVerb(s, n)
	cmd.Use, cmd.Short = "attach [-f FILE]", "Use a machine or a cluster that is there already"
	cmd.Long = "Makes a compute of a machine that is there already.\n\n" +
		"  berth compute attach -n gpu1 --ssh me@gpu1.lab    a machine that the server reaches over SSH; an alias of ~/.ssh/config will do\n" +
		"  berth compute attach -n pool --ssh me@a --ssh me@b   several machines as one compute\n" +
		"  berth compute attach -n laptop --this-machine     the machine you type this on; it connects to the server and opens no port\n" +
		"  berth compute attach -n site --type slurm --ssh me@login.lab --partition gpu   a Slurm cluster; without --ssh, one whose commands work on the server's machine\n" +
		"  berth compute attach -n site --type slurm --rest https://slurm.lab:6820 --user me --token-file FILE   a Slurm cluster by slurmrestd; without --token-file, the token is SLURM_JWT of the environment\n" +
		"  berth compute attach -n k8s --type kubernetes --kubeconfig FILE --context NAME --namespace ml --image IMAGE   a namespace of a Kubernetes cluster\n" +
		"  berth compute attach -n desk --type agent         another machine that connects to the server, see `berth agent`\n\n" +
		"Over SSH nothing has to be installed on the machine, and no root is needed. The key that the machine shows first is the one it\n" +
		"has to show from then on; --host-key names it beforehand. A key that only your SSH agent has cannot be given to a server; where its operator\n" +
		"has given the server an agent (ssh_agent in berth.yaml), --agent-key names a key of that one."
	var where []string
	var here, rbac bool
	cmd.Flags().StringArrayVar(&where, "ssh", nil, "[USER@]HOST[:PORT] or an alias in ~/.ssh/config, which gives address, account, port, key and jump hosts; repeat it for several machines as one compute")
	cmd.Flags().BoolVar(&here, "this-machine", false, "attach this machine: start an agent that connects it to the server")
	cmd.Flags().BoolVar(&rbac, "print-rbac", false, "print the least rights that a Kubernetes compute needs in --namespace, and attach nothing")
	create := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if rbac {
			_, err := io.WriteString(s.out, kubernetes.RBAC(cmp.Or(cmd.Flags().Lookup("namespace").Value.String(), "default")))
			return err
		}
		if cmd.Flags().Changed("rest") {
			if err := restFlags(cmd); err != nil {
				return err
			}
		}
		if len(where) > 0 {
			if err := sshFlags(cmd, where); err != nil {
				return err
			}
		}
		if !here {
			return create(cmd, args)
		}
		if len(where) > 0 {
			return usagef("--ssh and --this-machine exclude each other")
		}
		if err := cmd.Flags().Set("type", "agent"); err != nil {
			return err
		}
		name := cmd.Flags().Lookup("name").Value.String()
		if name == "" && len(args) > 0 {
			name = args[0]
		}
		return s.thisMachine(cmd.Context(), name, func() error { return create(cmd, args) })
	}
	return cmd
}

// restFlags sets the flags that --rest stands for. A token is not an argument, which everybody on
// the machine could read.
func restFlags(cmd *cobra.Command) error {
	if cmd.Flags().Changed("ssh") {
		return usagef("--ssh and --rest exclude each other")
	}
	if !cmd.Flags().Changed("type") {
		if err := cmd.Flags().Set("type", "slurm"); err != nil {
			return err
		}
	}
	if cmd.Flags().Changed("token-file") {
		return nil
	}
	token := os.Getenv("SLURM_JWT")
	if token == "" {
		return usagef("the token of slurmrestd is missing: --token-file FILE, or SLURM_JWT in the environment; `scontrol token` makes one on the cluster")
	}
	return cmd.Flags().Set("set", "rest_settings.token="+token)
}

// sshFlags sets the flags that --ssh stands for, but for those that were given themselves.
func sshFlags(cmd *cobra.Command, all []string) error {
	for _, where := range all {
		if strings.HasPrefix(where, "-") {
			return usagef("--ssh %q must be [USER@]HOST[:PORT]", where)
		}
	}
	where := all[0]
	w := sshWhere(cmd.Context(), where)
	flags := map[string]string{
		"type": "virtualmachine", "address": w["hostname"], "admin-username": w["user"], "ssh-port": w["port"], "jump-host": jumpOf(w["proxyjump"]),
	}
	if len(all) > 1 {
		flags = map[string]string{"type": "virtualmachine", "admin-username": w["user"]}
		if err := sshMachines(cmd, all); err != nil {
			return err
		}
	}
	for flag, value := range flags {
		if value != "" && !cmd.Flags().Changed(flag) {
			if err := cmd.Flags().Set(flag, value); err != nil {
				return err
			}
		}
	}
	for _, flag := range []string{"ssh-private-key-file", "admin-password", "agent-key"} {
		if cmd.Flags().Changed(flag) {
			return nil
		}
	}
	flag, value, err := sshKey(cmd.Context(), where, w)
	if err != nil {
		return err
	}
	return cmd.Flags().Set(flag, value)
}

// sshMachines sets what several --ssh stand for. They share one key.
func sshMachines(cmd *cobra.Command, all []string) error {
	for _, flag := range []string{"address", "ssh-port", "host-key"} {
		if cmd.Flags().Changed(flag) {
			return usagef("--%s is for one machine; give each as --ssh [USER@]HOST[:PORT]", flag)
		}
	}
	for i, where := range all {
		w := sshWhere(cmd.Context(), where)
		for field, value := range map[string]string{
			"address": w["hostname"], "admin_username": w["user"], "ssh_port": w["port"], "jump_hosts[0]": jumpOf(w["proxyjump"]),
		} {
			if value == "" {
				continue
			}
			if err := cmd.Flags().Set("set", fmt.Sprintf("ssh_settings.machines[%d].%s=%s", i, field, value)); err != nil {
				return err
			}
		}
	}
	return nil
}

// sshWhere is what ssh would do to reach a host: its own program reads its configuration best.
// Several values of a key are in lines.
func sshWhere(ctx context.Context, where string) map[string]string {
	user, host, found := strings.Cut(where, "@")
	if !found {
		user, host = "", where
	}
	args := []string{"-G"}
	if h, port, ok := strings.Cut(host, ":"); ok && !strings.Contains(port, ":") {
		host = h
		args = append(args, "-p", port)
	}
	if user != "" {
		args = append(args, "-l", user)
	}
	out := map[string]string{"hostname": host, "user": user, "identityfile": "~/.ssh/id_ed25519\n~/.ssh/id_ecdsa\n~/.ssh/id_rsa"}
	if len(args) > 2 && args[1] == "-p" {
		out["port"] = args[2]
	}
	if out["user"] == "" {
		out["user"] = os.Getenv("USER")
	}
	b, err := exec.CommandContext(ctx, "ssh", append(args, "--", host)...).Output()
	if err != nil {
		return out // without the program there is no configuration to honour
	}
	out = map[string]string{}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if was := out[key]; was != "" {
			value = was + "\n" + value
		}
		out[key] = value
	}
	return out
}

// jumpOf is a jump host as the API has it; ssh says none for no jump host.
func jumpOf(proxyJump string) string {
	if strings.EqualFold(proxyJump, "none") {
		return ""
	}
	return proxyJump
}
