package cli

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/config"
)

// serverStatus is what `berth status -o json` prints.
type serverStatus struct {
	Running   bool            `json:"running"`
	URL       string          `json:"url,omitempty"`
	Version   string          `json:"version,omitempty"`
	PID       int             `json:"pid,omitempty"`
	Home      string          `json:"home,omitempty"`
	User      string          `json:"user,omitempty"`
	Role      string          `json:"role,omitempty"`
	Workspace berth.Workspace `json:"workspace,omitzero"`
	Active    int             `json:"active_jobs"`
	Trouble   string          `json:"trouble,omitempty"`

	Servers []client.ServerInfo `json:"servers,omitempty"`
}

func statusCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which server is used and whether it is running",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.noStart = true
			c, err := s.open(cmd.Context())
			if err != nil {
				if s.cfg.URL != "" || exitCode(err) != exitUnreachable {
					return err
				}
				if s.format.chosen() {
					if err := s.print(serverStatus{Home: s.cfg.Home}); err != nil {
						return err
					}
				} else {
					start := "berth up"
					if unit := config.Service(s.cfg.Home); unit != "" {
						start = "systemctl start " + strings.TrimSuffix(unit, ".service")
					}
					fmt.Fprintf(s.out, "no server runs in %s; `%s` starts one\n", s.cfg.Home, start)
				}
				return exitError(exitUnreachable)
			}
			about, err := c.About(cmd.Context())
			if err != nil {
				return err
			}
			st := serverStatus{Running: true, URL: about.URL, Version: about.Version, PID: c.Server().PID, User: about.User, Role: about.Role, Workspace: c.Workspace, Trouble: about.Trouble, Servers: about.Servers}
			if c.Local() {
				st.Home = s.cfg.Home
			}
			for _, err := range c.Jobs(cmd.Context(), client.JobQuery{View: "All", Status: berth.ActiveStatuses}) {
				if err != nil {
					return err
				}
				st.Active++
			}
			if s.format.chosen() {
				return s.print(st)
			}
			return s.printStatus(st)
		},
	}
	s.format.flags(cmd)
	return cmd
}

func (s *session) printStatus(st serverStatus) error {
	line := func(key string, format string, args ...any) {
		fmt.Fprintf(s.out, "%-10s %s\n", key, fmt.Sprintf(format, args...))
	}
	line("server", "%s, version %s", st.URL, st.Version)
	if st.Home != "" {
		line("home", "%s, pid %d", st.Home, st.PID)
	}
	for _, o := range st.Servers {
		state := "follows"
		switch {
		case o.Leads:
			state = "leads"
		case !o.Alive:
			state = "is away"
		}
		line("  "+o.Name, "%s, %s", state, o.URL)
	}
	line("workspace", "%s in resource group %s", st.Workspace.Name, st.Workspace.Group)
	line("you", "%s, %s", st.User, st.Role)
	line("jobs", "%d running or waiting", st.Active)
	if st.Trouble != "" {
		s.warn("%s", st.Trouble)
	}
	s.warnOfShell(st.URL)
	return nil
}

// warnOfShell says what tokens allow where others than this machine's users can reach the server.
func (s *session) warnOfShell(address string) {
	u, err := url.Parse(address)
	if err != nil {
		return
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		s.warn("%s", berth.TokenIsShell)
	}
}
