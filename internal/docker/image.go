package docker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// A Reference names an image: [HOST/]NAME[:TAG][@DIGEST].
type Reference struct {
	Name string // with the host where one was given
	Tag  string // a tag or a digest; "latest" where neither was given
}

// ParseReference reads the name of an image.
func ParseReference(s string) (Reference, error) {
	name, tag, pinned := strings.Cut(s, "@")
	if i := strings.LastIndexByte(name, ':'); i >= 0 && !strings.Contains(name[i:], "/") {
		if !pinned {
			tag = name[i+1:]
			pinned = true
		}
		name = name[:i]
	}
	if !pinned {
		tag = "latest"
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.Trim(part, ".") == "" || strings.Trim(part, nameLetters+":") != "" {
			return Reference{}, fmt.Errorf("%q is not a valid image name", s)
		}
	}
	if tag == "" || strings.Trim(tag, nameLetters+":") != "" {
		return Reference{}, fmt.Errorf("%q is not an image name: its tag is invalid", s)
	}
	return Reference{name, tag}, nil
}

const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+"

// Host is the registry that the image comes from.
func (r Reference) Host() string {
	host, _, ok := strings.Cut(r.Name, "/")
	if !ok || !strings.ContainsAny(host, ".:") && host != "localhost" && strings.ToLower(host) == host {
		return "docker.io"
	}
	if host == "index.docker.io" {
		return "docker.io"
	}
	return host
}

// An Image is what the engine knows of one.
type Image struct {
	ID     string `json:"Id"`
	Size   int64
	Names  []string `json:"RepoTags"`
	Config struct {
		Labels           map[string]string
		Env              []string
		Entrypoint, Cmd  []string
		User, WorkingDir string
	}
}

// Image looks at an image, by its id or name.
func (c *Client) Image(ctx context.Context, ref string) (Image, error) {
	var out Image
	if _, err := ParseReference(ref); err != nil {
		return out, &Error{http.StatusBadRequest, err.Error()}
	}
	err := c.call(ctx, http.MethodGet, "/images/"+ref+"/json", nil, nil, &out)
	return out, err
}

// RemoveImage takes a name from an image, and removes the image with the last one unless a
// container uses it.
func (c *Client) RemoveImage(ctx context.Context, ref string) error {
	return c.call(ctx, http.MethodDelete, "/images/"+ref, nil, nil, nil)
}

// Auth is a login to a registry.
type Auth struct {
	Username      string `json:"username,omitempty"`
	Password      string `json:"password,omitempty"`
	ServerAddress string `json:"serveraddress,omitempty"`
	IdentityToken string `json:"identitytoken,omitempty"`
}

// A Message is a line of what an engine says while it pulls or builds an image.
type Message struct {
	ID       string `json:"id"`
	Status   string `json:"status"`
	Stream   string `json:"stream"`
	Progress struct {
		Current, Total int64
	} `json:"progressDetail"`
	// Error is why it failed, or "".
	Error string `json:"error"`
	// Detail is the same; some engines send only the one or the other.
	Detail struct{ Message string } `json:"errorDetail"`
}

// Pull fetches an image from its registry. Each message goes to tell, which may end it with an
// error; so does a message of failure.
func (c *Client) Pull(ctx context.Context, r Reference, auth *Auth, tell func(Message) error) error {
	var header http.Header
	if auth != nil {
		text, err := json.Marshal(auth)
		if err != nil {
			return err
		}
		header = http.Header{"X-Registry-Auth": {base64.URLEncoding.EncodeToString(text)}}
	}
	res, err := c.send(ctx, http.MethodPost, "/images/create", url.Values{"fromImage": {r.Name}, "tag": {r.Tag}}, nil, header)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return messages(res.Body, tell)
}

// A Build is how an image is made of a folder.
type Build struct {
	Tag        string
	Dockerfile string // slash-separated, below the folder
	Labels     map[string]string
}

// Build makes an image of a folder, given as a tar file. It is told of as Pull is.
func (c *Client) Build(ctx context.Context, folder io.Reader, b Build, tell func(Message) error) error {
	labels, err := json.Marshal(b.Labels)
	if err != nil {
		return err
	}
	query := url.Values{
		"t": {b.Tag}, "dockerfile": {b.Dockerfile}, "labels": {string(labels)}, "rm": {"1"}, "forcerm": {"1"}, "networkmode": {"host"}, "version": {"1"},
	}
	res, err := c.send(ctx, http.MethodPost, "/build", query, &body{"application/x-tar", folder}, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return messages(res.Body, tell)
}

// Load takes over the images of a file that docker save wrote.
func (c *Client) Load(ctx context.Context, file io.Reader) error {
	res, err := c.send(ctx, http.MethodPost, "/images/load", url.Values{"quiet": {"1"}}, &body{"application/x-tar", file}, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return messages(res.Body, func(Message) error { return nil })
}

// Commit makes an image of a container, with changes as a Dockerfile has them.
func (c *Client) Commit(ctx context.Context, id, ref string, changes []string) error {
	r, err := ParseReference(ref)
	if err != nil {
		return err
	}
	query := url.Values{"container": {id}, "repo": {r.Name}, "tag": {r.Tag}, "changes": changes}
	return c.call(ctx, http.MethodPost, "/commit", query, struct{}{}, nil)
}

// messages reads what an engine says until it ends.
func messages(r io.Reader, tell func(Message) error) error {
	for dec := json.NewDecoder(r); ; {
		var m Message
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if m.Error == "" {
			m.Error = m.Detail.Message
		}
		if err := tell(m); err != nil {
			return err
		}
		if m.Error != "" {
			return errors.New(m.Error)
		}
	}
}
