package docker

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Config says what runs in a container.
type Config struct {
	Image        string            `json:",omitempty"`
	Entrypoint   []string          `json:",omitempty"`
	Cmd          []string          `json:",omitempty"`
	Env          []string          `json:",omitempty"`
	WorkingDir   string            `json:",omitempty"`
	User         string            `json:",omitempty"`
	Labels       map[string]string `json:",omitempty"`
	AttachStdout bool              `json:",omitempty"`
	AttachStderr bool              `json:",omitempty"`
}

// HostConfig says what a container gets of its machine.
type HostConfig struct {
	NetworkMode    string          `json:",omitempty"`
	IpcMode        string          `json:",omitempty"`
	ShmSize        int64           `json:",omitempty"`
	CapAdd         []string        `json:",omitempty"`
	Ulimits        []Ulimit        `json:",omitempty"`
	NanoCPUs       int64           `json:"NanoCpus,omitempty"`
	Memory         int64           `json:",omitempty"`
	MemorySwap     int64           `json:",omitempty"`
	Mounts         []Mount         `json:",omitempty"`
	Devices        []Device        `json:",omitempty"`
	DeviceRequests []DeviceRequest `json:",omitempty"`
}

// A Ulimit is a limit of the kernel for processes.
type Ulimit struct {
	Name       string
	Soft, Hard int64
}

// A Mount shows a file or folder of the machine in a container.
type Mount struct {
	Type           string // "bind"
	Source, Target string
	ReadOnly       bool
}

// A Device of the machine is given to a container by its path, or by its name in a CDI file.
type Device struct {
	PathOnHost, PathInContainer, CgroupPermissions string
}

// A DeviceRequest asks a driver for devices.
type DeviceRequest struct {
	Driver       string
	DeviceIDs    []string
	Capabilities [][]string
}

// A Container is what the engine knows of one.
type Container struct {
	ID     string `json:"Id"`
	Config struct{ Labels map[string]string }
	State  struct {
		Running   bool
		OOMKilled bool
		Pid       int
	}
	HostConfig      struct{ Memory int64 }
	NetworkSettings struct {
		Networks map[string]struct{ IPAddress string }
	}
}

// Create makes a container and returns its id. A name that is taken is a conflict.
func (c *Client) Create(ctx context.Context, name string, cfg Config, host HostConfig) (string, error) {
	in := struct {
		Config
		HostConfig HostConfig
	}{cfg, host}
	var out struct {
		ID string `json:"Id"`
	}
	err := c.call(ctx, http.MethodPost, "/containers/create", url.Values{"name": {name}}, in, &out)
	return out.ID, err
}

// Start starts a container.
func (c *Client) Start(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, "/containers/"+id+"/start", nil, nil, nil)
}

// Inspect looks at a container, by its id or name.
func (c *Client) Inspect(ctx context.Context, id string) (Container, error) {
	var out Container
	err := c.call(ctx, http.MethodGet, "/containers/"+id+"/json", nil, nil, &out)
	return out, err
}

// List is the ids of all containers, running or not, that have the label with that value; all there
// are where label is empty.
func (c *Client) List(ctx context.Context, label, value string) ([]string, error) {
	query := url.Values{"all": {"1"}}
	if label != "" {
		filter, err := json.Marshal(map[string][]string{"label": {label + "=" + value}})
		if err != nil {
			return nil, err
		}
		query.Set("filters", string(filter))
	}
	var found []struct {
		ID string `json:"Id"`
	}
	err := c.call(ctx, http.MethodGet, "/containers/json", query, nil, &found)
	ids := make([]string, len(found))
	for i, f := range found {
		ids[i] = f.ID
	}
	return ids, err
}

// Wait waits for the end of a container and returns its exit code.
func (c *Client) Wait(ctx context.Context, id string) (int, error) {
	var out struct {
		StatusCode int
		Error      *struct{ Message string }
	}
	err := c.call(ctx, http.MethodPost, "/containers/"+id+"/wait", url.Values{"condition": {"not-running"}}, nil, &out)
	if err == nil && out.Error != nil && out.Error.Message != "" {
		err = errors.New(out.Error.Message)
	}
	if err != nil {
		return -1, err
	}
	return out.StatusCode, nil
}

// Kill sends a signal to the first process of a container.
func (c *Client) Kill(ctx context.Context, id, signal string) error {
	return c.call(ctx, http.MethodPost, "/containers/"+id+"/kill", url.Values{"signal": {signal}}, nil, nil)
}

// Exec starts a command in a container that runs, and does not wait for it.
func (c *Client) Exec(ctx context.Context, id string, cmd ...string) error {
	var out struct {
		ID string `json:"Id"`
	}
	if err := c.call(ctx, http.MethodPost, "/containers/"+id+"/exec", nil, map[string]any{"Cmd": cmd}, &out); err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, "/exec/"+out.ID+"/start", nil, map[string]any{"Detach": true}, nil)
}

// Remove ends a container if it runs and removes it with its volumes.
func (c *Client) Remove(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/containers/"+id, url.Values{"force": {"1"}, "v": {"1"}}, nil, nil)
}

// Attach is the output of a container from now on, as Copy reads it.
func (c *Client) Attach(ctx context.Context, id string) (io.ReadCloser, error) {
	res, err := c.send(ctx, http.MethodPost, "/containers/"+id+"/attach", url.Values{"stream": {"1"}, "stdout": {"1"}, "stderr": {"1"}},
		nil, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"tcp"}})
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// Logs is the output of a container from its start to its end, as Copy reads it.
func (c *Client) Logs(ctx context.Context, id string) (io.ReadCloser, error) {
	res, err := c.send(ctx, http.MethodGet, "/containers/"+id+"/logs", url.Values{"stdout": {"1"}, "stderr": {"1"}, "follow": {"1"}}, nil, nil)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// Copy writes to w what a container wrote to its standard output and standard error, which engines
// send in frames.
func Copy(w io.Writer, r io.Reader) error {
	const systemError = 3
	for b := bufio.NewReaderSize(r, 64<<10); ; {
		var head [8]byte
		if _, err := io.ReadFull(b, head[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if head[0] > systemError {
			return fmt.Errorf("the container engine sent an unknown stream type %d", head[0])
		}
		size := int64(binary.BigEndian.Uint32(head[4:]))
		if head[0] == systemError {
			text, _ := io.ReadAll(io.LimitReader(b, min(size, 64<<10)))
			return fmt.Errorf("the engine: %s", text)
		}
		if _, err := io.CopyN(w, b, size); err != nil {
			return err
		}
	}
}

// Stats is what the engine measured of a container.
type Stats struct {
	CPU struct {
		Usage struct {
			Total uint64 `json:"total_usage"` // nanoseconds
		} `json:"cpu_usage"`
	} `json:"cpu_stats"`
	Memory struct {
		Usage uint64            `json:"usage"`
		Stats map[string]uint64 `json:"stats"`
	} `json:"memory_stats"`
	Disk struct {
		Bytes []struct {
			Op    string `json:"op"`
			Value uint64 `json:"value"`
		} `json:"io_service_bytes_recursive"`
	} `json:"blkio_stats"`
	Networks map[string]struct {
		Received uint64 `json:"rx_bytes"`
		Sent     uint64 `json:"tx_bytes"`
	} `json:"networks"`
}

// Stats measures a container once. It is all zero of one that has ended.
func (c *Client) Stats(ctx context.Context, id string) (Stats, error) {
	var out Stats
	err := c.call(ctx, http.MethodGet, "/containers/"+id+"/stats", url.Values{"stream": {"0"}, "one-shot": {"1"}}, nil, &out)
	if errors.Is(err, io.EOF) { // Podman answers nothing of one that has ended
		err = nil
	}
	return out, err
}
