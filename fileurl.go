package berth

import (
	"net/url"
	"path/filepath"
	"strings"
)

// FileURL returns the path that a file URL names; ok reports whether uri is meant to be one. The
// server, which decides who may use the path, and the runner, which opens it, both use this
// function: a difference between them would be a security hole.
func FileURL(uri string) (path string, ok bool, err error) {
	const scheme = "file:"
	uri = strings.TrimSpace(uri)
	if len(uri) < len(scheme) || !strings.EqualFold(uri[:len(scheme)], scheme) {
		return "", false, nil
	}
	rest, slashes := strings.CutPrefix(uri[len(scheme):], "//")
	rest = strings.TrimPrefix(rest, "localhost")
	if !slashes || !strings.HasPrefix(rest, "/") {
		return "", true, Errorf(Invalid, "%q is not a file URL; write file:///PATH", uri)
	}
	if strings.ContainsAny(rest, "?#") {
		return "", true, Errorf(Invalid, "%q has a query or a fragment, which a file URL must not have: write ? as %%3F and # as %%23", uri)
	}
	if path, err = url.PathUnescape(rest); err != nil || strings.ContainsRune(path, 0) {
		return "", true, Errorf(Invalid, "%q is not a file URL: its path cannot be read", uri)
	}
	return filepath.FromSlash(path), true, nil
}

// CleanURL is a URL for people: without what opens it, a signature in its query or a password.
func CleanURL(rawURL string) string {
	u, _, _ := strings.Cut(rawURL, "?")
	scheme, rest, ok := strings.Cut(u, "://")
	if !ok {
		return u
	}
	authority, path, hasPath := CutAuthority(scheme, rest)
	at := strings.LastIndexByte(authority, '@')
	if strings.Contains(authority[:max(at, 0)], ":") || strings.HasPrefix(strings.ToLower(scheme), "http") {
		authority = authority[at+1:] // of Azure's schemes, what is before it is a container
	}
	if hasPath {
		authority += "/" + path
	}
	return scheme + "://" + authority
}

// CutAuthority cuts what follows "scheme://" after the host. A password with a slash makes an
// address that nothing can read: what may be one ends with the last @.
func CutAuthority(scheme, rest string) (authority, path string, hasPath bool) {
	end := strings.IndexByte(rest, '/')
	if end < 0 {
		return rest, "", false
	}
	if _, err := url.Parse(scheme + "://" + rest); err != nil {
		if at := strings.LastIndexByte(rest, '@'); at > end {
			authority, path, hasPath = strings.Cut(rest[at:], "/")
			return rest[:at] + authority, path, hasPath
		}
	}
	return rest[:end], rest[end+1:], true
}
