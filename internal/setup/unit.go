package setup

import (
	"net"
	"strconv"
	"strings"

	"github.com/berthml/berth/internal/config"
)

// Unit is the text of the systemd unit.
func (t *Team) Unit() string {
	after := "network-online.target"
	if t.Database != "" {
		after += " postgresql.service"
	}
	lines := []string{
		"# Written by `berth setup team`; `systemctl edit " + config.Unit + "` adds to it.",
		"[Unit]",
		"Description=Berth, a compute plane for machine learning",
		"Wants=network-online.target",
		"After=" + after,
		"",
		"[Service]",
		"Type=exec",
		"User=" + t.Account,
		"Group=" + t.Account,
		"ExecStart=" + t.program() + " serve --home " + t.Home,
		"WorkingDirectory=" + t.Home,
		"Restart=on-failure",
		"RestartSec=2",
		"# Commands of jobs keep running when the server stops, and the next one takes them over.",
		"KillMode=process",
		"# One job that is out of memory does not end the others.",
		"OOMPolicy=continue",
		"# The server has its own control groups, with which it limits and measures jobs.",
		"Delegate=yes",
		"TasksMax=infinity",
		"LimitNOFILE=1048576",
		"# /usr, /boot and /etc are read-only. Jobs use /tmp, /home, devices, FUSE mounts and rootless containers: options that",
		"# take those away, or imply NoNewPrivileges=, are not set.",
		"ProtectSystem=full",
	}
	if _, port, err := net.SplitHostPort(t.Listen); err == nil {
		if n, err := strconv.Atoi(port); err == nil && n < 1024 {
			lines = append(lines, "AmbientCapabilities=CAP_NET_BIND_SERVICE")
		}
	}
	lines = append(lines, "", "[Install]", "WantedBy=multi-user.target", "")
	return strings.Join(lines, "\n")
}
