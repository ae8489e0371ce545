package gateway

import (
	"net/textproto"

	"github.com/berthml/berth/internal/serve"
)

// collect hands a sample over of a request that was answered, where its deployment asks for that.
// Of bodies and answers that were streamed nothing is kept.
func (x *exchange) collect(k key, e *endpoint) {
	s := x.kept
	if s == nil || s.Status == 0 {
		return
	}
	wanted := false
	for _, c := range x.d.collect.Collections {
		wanted = wanted || s.Chance < c.Rate
	}
	if !wanted {
		return
	}
	s.Workspace, s.Endpoint, s.Deployment, s.User, s.Collecting = k.workspace, e.name, x.d.name, x.d.maker, x.d.collect
	s.ID, s.ClientID = x.id, x.r.Header.Get("X-Ms-Client-Request-Id")
	s.Request, s.RequestType = x.body, x.r.Header.Get("Content-Type")
	s.Headers = x.captured(x.d.collect)
	x.g.o.Collect(*s)
}

// captured are the headers of a request that are kept with it; credentials never are.
func (x *exchange) captured(c *serve.Collecting) map[string]string {
	out := map[string]string{}
	for _, name := range c.Headers {
		name = textproto.CanonicalMIMEHeaderKey(name)
		if v := x.r.Header.Get(name); v != "" && !private(name) {
			out[name] = clip(v, maxCaptured)
		}
	}
	return out
}

// maxCaptured bounds what is kept of a header.
const maxCaptured = 4 << 10

// get is a header of an answer.
func (a *answer) get(name string) string {
	for _, f := range a.fields {
		if f.name == name {
			return f.value
		}
	}
	return ""
}
