package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

func openCommand(s *session) *cobra.Command {
	var app string
	var printOnly bool
	cmd := &cobra.Command{
		Use:   "open NAME [SERVICE]",
		Short: "Open a compute instance, a job's service or an endpoint in the browser",
		Long: "Opens JupyterLab of a compute instance, a service of a running job, or the description of an online endpoint in this machine's browser.\n" +
			"Where there is no browser, or with --print, the address is printed. That of an instance or a job works once, within a minute.\n\n" +
			"  berth open mybox              JupyterLab of an instance\n" +
			"  berth open myjob board        the service board of a job",
		Args: openArgs, ValidArgsFunction: s.completeOpen,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			c, err := s.open(ctx)
			if err != nil {
				return err
			}
			if len(args) > 1 {
				app = args[1]
			}
			address, err := s.addressOf(ctx, c, args[0], app)
			if err != nil {
				return err
			}
			return s.browse(ctx, address, !printOnly)
		},
	}
	cmd.Flags().StringVar(&app, "app", "", "application of an instance, or service of a job (default: JupyterLab, or the first)")
	cmd.Flags().BoolVar(&printOnly, "print", false, "print the address and open nothing")
	return cmd
}

// openArgs are a name and, of a job, a service.
func openArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 2 && !cmd.Flags().Changed("app") {
		return nil
	}
	return oneArg("name of an instance, a job or an endpoint")(cmd, args)
}

// browse opens an address in a browser, or prints it.
func (s *session) browse(ctx context.Context, address string, open bool) error {
	if open && hasBrowser() {
		if err := openBrowser(ctx, address); err == nil {
			return nil
		}
		s.warn("no browser could be opened here; this is the address")
	}
	_, err := fmt.Fprintln(s.out, address)
	return err
}

// hasBrowser reports whether this machine has a screen and something to open addresses with.
func hasBrowser() bool {
	switch runtime.GOOS {
	case "darwin", "windows":
		return true
	}
	_, err := exec.LookPath("xdg-open")
	return err == nil && (os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "" || os.Getenv("BROWSER") != "")
}

// addressOf is the address of what has a name: an instance, an endpoint, or a job.
func (s *session) addressOf(ctx context.Context, c *client.Client, name, app string) (string, error) {
	d, err := c.Get(ctx, "computes", name)
	switch {
	case err == nil:
		if _, ok := client.AsInstance(d); !ok {
			return "", berth.Errorf(berth.Invalid, "compute %s has nothing to open: only compute instances have applications; `berth explain %s` tells about it", d.Name(), d.Name())
		}
		return c.OpenURL(ctx, d.Name(), app, false)
	case berth.CodeOf(err) != berth.NotFound:
		return "", err
	}
	d, err = c.Get(ctx, "onlineEndpoints", name)
	switch {
	case err == nil:
		uri, _ := d.Properties()["swaggerUri"].(string)
		if uri == "" {
			uri, _ = d.Properties()["scoringUri"].(string)
		}
		s.hint("calls need the endpoint's key: `berth endpoint test %s` makes one", d.Name())
		return uri, nil
	case berth.CodeOf(err) != berth.NotFound:
		return "", err
	}
	j, err := s.job(ctx, c, name)
	if berth.CodeOf(err) == berth.NotFound {
		return "", berth.Errorf(berth.NotFound, "there is no compute instance, endpoint or job %s in workspace %s", name, c.Workspace.Name)
	}
	if err != nil {
		return "", err
	}
	return s.serviceOf(ctx, c, j.Name, app)
}

// serviceOf is the address of a service of a job.
func (s *session) serviceOf(ctx context.Context, c *client.Client, job, want string) (string, error) {
	d, err := c.Get(ctx, "jobs", job)
	if err != nil {
		return "", err
	}
	services, _ := d.Properties()["services"].(map[string]any)
	var names []string
	for _, name := range sortedKeys(services) {
		v, _ := services[name].(map[string]any)
		if kind, _ := v["jobServiceType"].(string); kind == "Studio" || kind == "Tracking" || kind == berth.ServiceSSH && want == "" {
			continue // the server's, not the job's; or nothing for a browser
		}
		if want == "" || strings.EqualFold(want, name) {
			return c.OpenService(ctx, job, name, false)
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		return "", berth.Errorf(berth.NotFound, "job %s has no service %s; it has %s", job, want, strings.Join(names, ", "))
	}
	return "", berth.Errorf(berth.NotFound, "job %s has no service to open; `berth logs -f %s` shows its output, `berth explain %s` tells how it goes", job, job, job)
}
