package front

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/berthml/berth"
)

func coded(code berth.Code, wire, msg string) *berth.Error {
	return &berth.Error{Code: code, Wire: wire, Msg: msg}
}

// statuses are those that differ from the ones of the error's code.
var statuses = map[string]int{
	"AuthenticationFailed": http.StatusForbidden, // 401 would make clients look for a token
	"InvalidRange":         http.StatusRequestedRangeNotSatisfiable,
	"NotModified":          http.StatusNotModified,
}

// fail answers with an error as the storage service writes them.
func (c *call) fail(err error) {
	c.drain()
	if errors.Is(err, context.Canceled) && c.r.Context().Err() != nil {
		// As a rule nobody is there to read it. Whoever is must not take silence for success.
		err = coded(berth.Unavailable, "ServerBusy", "the request was interrupted; send it again")
	}
	code, msg := berth.CodeOf(err), "internal error; see the server's log for this request id"
	wire := "InternalError"
	var e *berth.Error
	if errors.As(err, &e) && code != berth.Internal {
		wire, msg = e.WireCode(), err.Error()
	} else {
		c.h.o.Log.Error("blob request failed", "request", c.id, "method", c.r.Method, "container", c.container, "blob", c.name, "err", err)
	}
	status, ok := statuses[wire]
	if !ok {
		status = code.HTTPStatus()
	}
	hd := c.w.Header()
	hd.Set("x-ms-error-code", wire)
	if status == http.StatusUnauthorized {
		hd.Set("WWW-Authenticate", "Bearer")
	}
	if status == http.StatusNotModified {
		hd.Set("x-ms-error-code", "ConditionNotMet")
		c.w.WriteHeader(status)
		return
	}
	var b bytes.Buffer
	b.WriteString(xml.Header + "<Error><Code>" + wire + "</Code><Message>")
	xml.EscapeText(&b, []byte(msg+"\nRequestId:"+c.id+"\nTime:"+time.Now().UTC().Format(time.RFC3339))) //nolint:errcheck // memory
	b.WriteString("</Message></Error>")
	hd.Del("ETag")
	hd.Set("Content-Type", "application/xml")
	hd.Set("Content-Length", strconv.Itoa(b.Len()))
	c.w.WriteHeader(status)
	if c.r.Method != http.MethodHead {
		c.w.Write(b.Bytes()) //nolint:errcheck // the client went away
	}
}
