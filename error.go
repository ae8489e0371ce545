package berth

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
)

// A Code classifies an error for callers. The set is closed: clients and retry loops switch on it.
type Code string

// The error codes. Only Unavailable may be retried without a change by the caller.
const (
	Invalid         Code = "invalid"         // the request or document is wrong; Msg names the place and the fix
	NotFound        Code = "notfound"        // the named thing does not exist
	Conflict        Code = "conflict"        // it exists already, or its state forbids the operation
	Precondition    Code = "precondition"    // an If-Match or If-None-Match did not hold
	Unauthenticated Code = "unauthenticated" // no valid credentials
	Denied          Code = "denied"          // valid credentials without the right
	Limit           Code = "limit"           // a quota, size or rate limit blocks it
	Gone            Code = "gone"            // it existed, and what is asked of it is no longer kept
	Unsupported     Code = "unsupported"     // understood, but this server cannot do it
	Unavailable     Code = "unavailable"     // try again later
	Internal        Code = "internal"        // a fault of ours
)

// Error is an error with a code and a message for the user. Msg says what to do next where there is
// something to do.
type Error struct {
	Code Code
	// Wire is the code shown to Azure clients; empty means the default of Code.
	Wire string
	Msg  string
	Err  error
}

// Errorf makes an Error; a %w verb keeps the cause.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Msg: err.Error(), Err: errors.Unwrap(err)}
}

// Missingf returns the error for a request that refers to something that does not exist. Its code
// is Invalid, as in Azure.
func Missingf(format string, args ...any) *Error {
	return &Error{Code: Invalid, Msg: fmt.Sprintf(format, args...), Err: &Error{Code: NotFound}}
}

// IsMissing reports whether something that was named does not exist: the subject of a request, or
// what it refers to.
func IsMissing(err error) bool {
	for err != nil {
		if e, ok := err.(*Error); ok && e.Code == NotFound {
			return true
		}
		err = errors.Unwrap(err)
	}
	return false
}

func (e *Error) Error() string {
	if e.Msg != "" {
		return e.Msg
	}
	if e.Err != nil {
		return e.Err.Error()
	}
	return string(e.Code)
}

func (e *Error) Unwrap() error { return e.Err }

// IsDiskFull reports whether a disk or a quota that is used up is the reason of an error.
func IsDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// CodeOf returns the code of the first Error in err's chain, Internal if there is none, and "" for
// nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}

type codeInfo struct {
	status int
	wire   string
}

var codes = map[Code]codeInfo{
	Invalid:         {http.StatusBadRequest, "UserError"},
	NotFound:        {http.StatusNotFound, "ResourceNotFound"},
	Conflict:        {http.StatusConflict, "Conflict"},
	Precondition:    {http.StatusPreconditionFailed, "PreconditionFailed"},
	Unauthenticated: {http.StatusUnauthorized, "Unauthorized"},
	Denied:          {http.StatusForbidden, "AuthorizationFailed"},
	Limit:           {http.StatusBadRequest, "QuotaExceeded"},
	Gone:            {http.StatusGone, "Gone"},
	Unsupported:     {http.StatusBadRequest, "NotSupported"},
	Unavailable:     {http.StatusServiceUnavailable, "ServiceUnavailable"},
	Internal:        {http.StatusInternalServerError, "InternalServerError"},
}

// HTTPStatus returns the HTTP status for a code.
func (c Code) HTTPStatus() int {
	if i, ok := codes[c]; ok {
		return i.status
	}
	return http.StatusInternalServerError
}

// Known reports whether c is one of the codes above; one received from elsewhere may not be.
func (c Code) Known() bool {
	_, ok := codes[c]
	return ok
}

// WireCode is the code Azure clients see.
func (e *Error) WireCode() string {
	if e.Wire != "" {
		return e.Wire
	}
	if i, ok := codes[e.Code]; ok {
		return i.wire
	}
	return "InternalServerError"
}

// CodeOfHTTP is the inverse of HTTPStatus, for clients.
func CodeOfHTTP(status int) Code {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusGatewayTimeout:
		return Unavailable
	case http.StatusRequestEntityTooLarge:
		return Limit
	}
	for c, i := range codes {
		if i.status == status && c != Limit && c != Unsupported {
			return c
		}
	}
	if status >= 500 {
		return Internal
	}
	return Invalid
}
