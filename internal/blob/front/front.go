// Package front serves the blob store over HTTP as the subset of Azure Blob Storage that Azure
// clients use.
//
// A blob is at /ACCOUNT.blob.SUFFIX/CONTAINER/NAME, or at /CONTAINER/NAME of the host
// ACCOUNT.blob.ZONE where a zone is given. Names may hold "//", which http.ServeMux would clean
// away: call the handler for every request that Match takes, before any mux. Containers need not be
// created. Every blob looks as if it had been uploaded in one piece: committed block lists are not
// kept.
package front

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
)

// version is the service version shown to clients that do not name one.
const version = "2024-11-04"

// maxDrain is how much of an upload that was refused is read away, so that the client reads the
// reason instead of a broken connection. Azure clients send up to 64 MiB at once.
const maxDrain = 65 << 20

// Options are the settings of a Handler.
type Options struct {
	Account string // for example st
	Suffix  string // for example berth; a slash at its end does not count
	Zone    string // DNS zone of host-style addresses, "" for none; a port does not count
	// Bearer says whether a request with an Authorization header and no signature may do what it
	// asks, whose it is, and whether they also write to what belongs to others. Nil refuses all.
	Bearer func(r *http.Request) (user string, owner bool, err error)
	// Signed, where there is one, has the last word about a request with a good signature.
	Signed func(r *http.Request, g Grant) error
	// Writer returns the job that a name belongs to and its user, who alone may write there. The
	// user is empty if there is no such job; both are if the name is in no job's folder. An error
	// refuses the write. The answer depends on the first two segments of the name only. Nil lets
	// everybody write.
	Writer func(ctx context.Context, container, name string) (job, user string, err error)
	// Full returns an error if more bytes may not be stored in a container: with the grant g, or,
	// where it is nil, a token. It is asked before a write and while it arrives. Nil is no limit.
	Full func(ctx context.Context, container string, g *Grant, more int64) error
	// Near says whether a request is of the user of this machine, who can read what the server can.
	// Nil is nobody.
	Near func(r *http.Request) bool
	Log  *slog.Logger
}

// Handler is the blob endpoint.
type Handler struct {
	store  *blob.Store
	signer *Signer
	o      Options
	prefix string // of path-style addresses, without the last slash
	host   string // of host-style addresses, "" for none
}

// New makes a Handler.
func New(store *blob.Store, signer *Signer, o Options) *Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	h := &Handler{
		store: store, signer: signer, o: o,
		prefix: "/" + o.Account + ".blob." + strings.TrimRight(o.Suffix, "/"),
	}
	if o.Zone != "" {
		h.host = o.Account + ".blob." + hostname(strings.TrimRight(o.Zone, "/"))
	}
	return h
}

// Match reports whether a request is for this handler.
func (h *Handler) Match(r *http.Request) bool {
	_, ok := h.rest(r)
	return ok
}

// Access is what a request asks for: perm has letters of Grant.Perm, none when anyone with a right
// in the container may do it. A listing's name is its prefix. It is for Options.Bearer; ok is false
// when nothing here answers the request.
func (h *Handler) Access(r *http.Request) (container, name, perm string, ok bool) {
	c := &call{h: h, r: r}
	op, perm, err := c.parse()
	if err != nil || op == nil {
		return "", "", "", false
	}
	if c.name == "" && perm == "l" {
		return c.container, c.prefix(), perm, true
	}
	return c.container, c.name, perm, true
}

// A call is one request, taken apart.
type call struct {
	h               *Handler
	w               http.ResponseWriter
	r               *http.Request
	query           url.Values
	container, name string
	folder          string // of a listing below a folder, with its slash
	id              string
	grant           *Grant // nil for a bearer
	user            string // whose request it is, where that is known
	owner           bool   // they write to what belongs to others as well
	// recheck asks once more whether the caller may write to the name, and recheckRoom also
	// whether there is room for the bytes that have arrived.
	recheck     func() error
	recheckRoom func(n int64) error
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{h: h, w: w, r: r, id: berth.NewGUID()}
	c.common()
	if err := c.serve(); err != nil {
		c.fail(err)
	}
}

// common sets what every answer has.
func (c *call) common() {
	hd := c.w.Header()
	hd.Set("x-ms-request-id", c.id)
	hd.Set("x-ms-version", version)
	if v := c.r.Header.Get("x-ms-version"); v != "" && len(v) < 32 {
		hd.Set("x-ms-version", v)
	}
	if v := c.r.Header.Get("x-ms-client-request-id"); v != "" && len(v) <= 1024 {
		hd.Set("x-ms-client-request-id", v)
	}
	// Blobs are other people's bytes under the server's own address: a browser must not run them
	// with its rights.
	hd.Set("Content-Security-Policy", "sandbox")
	hd.Set("X-Content-Type-Options", "nosniff")
}

func (c *call) serve() error {
	op, perm, err := c.parse()
	if err != nil {
		return err
	}
	if op == nil {
		return coded(berth.Unsupported, "UnsupportedOperation", c.r.Method+" is not supported here by this server")
	}
	if err := c.authorize(perm); err != nil {
		return err
	}
	return op()
}

// parse takes the request apart. op is nil when there is no such operation.
func (c *call) parse() (op func() error, perm string, err error) {
	rest, ok := c.h.rest(c.r)
	if !ok {
		return nil, "", coded(berth.NotFound, "ResourceNotFound", "there is no storage account at this address")
	}
	if c.container, c.name, err = parsePath(rest); err != nil {
		return nil, "", err
	}
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		return nil, "", coded(berth.Invalid, "InvalidQueryParameterValue", "the query string is malformed")
	}
	op, perm = c.operation()
	return op, perm, nil
}

// operation finds what is asked, and the permission it takes.
func (c *call) operation() (op func() error, perm string) {
	method, comp := c.r.Method, c.query.Get("comp")
	// A client that was given the address of a folder takes its last segment for the container, and
	// lists that.
	if c.name != "" && method == http.MethodGet && comp == "list" && strings.EqualFold(c.query.Get("restype"), "container") {
		c.folder, c.name = strings.TrimSuffix(c.name, "/")+"/", ""
	}
	if c.name == "" {
		if c.container == "" || !strings.EqualFold(c.query.Get("restype"), "container") {
			return nil, ""
		}
		switch method + " " + comp {
		case "GET list":
			return c.list, "l"
		case "GET ", "HEAD ", "GET metadata", "HEAD metadata":
			return c.containerProperties, ""
		case "PUT ":
			return c.createContainer, "w"
		}
		return nil, ""
	}
	switch method + " " + comp {
	case "GET ":
		return c.get, "r"
	case "HEAD ", "HEAD metadata", "GET metadata":
		return c.properties, "r"
	case "GET blocklist":
		return c.blockList, "r"
	case "GET tree":
		return c.tree, "rl"
	case "PUT pack":
		return c.putPack, "w"
	case "PUT file":
		return c.putFile, "w"
	case "PUT reuse":
		return c.reuse, "w"
	case "POST pack":
		return c.getPack, "r"
	case "PUT ":
		return c.put, "w"
	case "PUT block":
		return c.putBlock, "b"
	case "PUT blocklist":
		return c.commit, "w"
	case "PUT metadata":
		return c.setMetadata, "w"
	case "DELETE ":
		return c.delete, "d"
	}
	return nil, ""
}

// isBelow reports whether an operation is about what is below a name, and not about the blob
// itself.
func isBelow(comp string) bool { return comp == "pack" || comp == "reuse" || comp == "tree" }

// prefix is what the names in a listing begin with.
func (c *call) prefix() string { return c.folder + c.query.Get("prefix") }

// drain reads away a body that was refused. A client that asked first has not sent it.
func (c *call) drain() {
	if c.r.Body != nil && c.r.Header.Get("Expect") == "" {
		io.CopyN(io.Discard, c.r.Body, maxDrain) //nolint:errcheck // the refusal is the answer
	}
}
