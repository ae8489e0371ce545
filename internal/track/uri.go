package track

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Where files may be. An MLflow client sends its token to whatever http host an artifact URI names,
// so a URI that one user gives and others follow names a storage service or this server.

const artifactScheme = "mlflow-artifacts"

// storageSchemes are the storage services that clients reach with credentials of their own.
var storageSchemes = []string{
	"s3", "s3a", "s3n", "gs", "wasb", "wasbs", "abfs", "abfss", "adl", "dbfs", "hdfs", "viewfs", "r2", "b2", "oss", "cos",
}

// deadSchemes are some that MLflow takes as places of files and that no client of it can reach, so
// that no token goes there either.
var deadSchemes = []string{"artifacts", "mysql", "postgresql", "mssql", "sqlite"}

// storeHosts are the domains of the services whose URIs name a host: clients ask for a token for
// Azure's storage, and show it to whatever host that is. This server's own blob zone is one more.
var storeHosts = map[string][]string{
	"wasb": azureHosts, "wasbs": azureHosts, "abfs": azureHosts, "abfss": azureHosts, "r2": {"cloudflarestorage.com"},
}

var azureHosts = []string{"core.windows.net", "core.chinacloudapi.cn", "core.usgovcloudapi.net", "fabric.microsoft.com"}

// bareHost is a container and a host that every client reads in the same way.
var bareHost = regexp.MustCompile(`^[a-z0-9$._-]+@([a-z0-9-]+(?:\.[a-z0-9-]+)+(?::[0-9]+)?)$`)

// azureKinds are what an azureml URI names in place of a host.
var azureKinds = []string{"datastores", "subscriptions", "jobs", "locations", "registries"}

// schemeOf is the scheme of a URI in lower case, "" for a path. Clients ignore blanks before it,
// and control characters anywhere.
func schemeOf(uri string) string {
	uri = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, uri)
	scheme, _, ok := strings.Cut(strings.TrimLeft(uri, " "), ":")
	if !ok || len(scheme) < 2 || strings.ContainsAny(scheme, "/?#") { // one letter is a drive
		return ""
	}
	return strings.ToLower(scheme)
}

// plainScheme is a URI with its scheme in lower case, in which alone it is compared.
func plainScheme(uri string) string {
	scheme := schemeOf(uri)
	if n := len(scheme); n <= len(uri) && strings.EqualFold(uri[:n], scheme) {
		return scheme + uri[n:]
	}
	return uri
}

// hostOf is the host that a URI names after //, "" where there is none.
func hostOf(uri string) string {
	_, rest, _ := strings.Cut(uri, ":")
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return ""
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	return strings.ToLower(rest)
}

// atStore says whether a URI's host is below one of these domains.
func atStore(uri string, domains ...string) bool {
	m := bareHost.FindStringSubmatch(hostOf(uri))
	return m != nil && slices.ContainsFunc(domains, func(d string) bool { return d != "" && strings.HasSuffix(m[1], "."+strings.ToLower(d)) })
}

// isLocal says whether a path, or a file URI, is of the client's machine: on Windows, //HOST/PATH
// is of another.
func isLocal(uri string) bool {
	p := uri
	if schemeOf(uri) == "file" {
		host := hostOf(uri)
		if host != "" && host != "localhost" {
			return false
		}
		_, p, _ = strings.Cut(uri, ":")
		if rest, ok := strings.CutPrefix(p, "//"); ok {
			p = rest[len(host):]
		}
	}
	if plain, err := url.PathUnescape(p); err == nil {
		p = plain
	}
	return !strings.HasPrefix(strings.ReplaceAll(p, `\`, "/"), "//")
}

// fit says whether clients may be sent to a URI. zone is that of this server's blobs.
func fit(uri, zone string) bool {
	if strings.ContainsFunc(uri, func(r rune) bool { return r < ' ' || r == 0x7f }) || strings.TrimLeft(uri, " ") != uri {
		return false
	}
	scheme := schemeOf(uri)
	if !strings.HasPrefix(uri, scheme) {
		return false
	}
	switch scheme {
	case "", "file":
		return isLocal(uri)
	case "runs", "models":
		host := hostOf(uri) // of another server: PROFILE@databricks
		return !strings.Contains(host, "@") && !strings.HasPrefix(host, "databricks")
	case artifactScheme:
		return hostOf(uri) == ""
	case "azureml":
		return slices.Contains(azureKinds, hostOf(uri))
	default:
		if domains, ok := storeHosts[scheme]; ok {
			return atStore(uri, zone) || atStore(uri, domains...)
		}
		return slices.Contains(storageSchemes, scheme) || slices.Contains(deadSchemes, scheme)
	}
}

// home is a URI of this server's artifact proxy in the one form in which it is kept,
// mlflow-artifacts:/PATH; other URIs are themselves. A host in a URI with the scheme of MLflow's
// proxy is left out, as the path is one of this server's.
func (c *call) home(uri string) string {
	switch schemeOf(uri) {
	case artifactScheme:
		_, rest, _ := strings.Cut(uri, ":")
		if after, ok := strings.CutPrefix(rest, "//"); ok {
			_, rest, _ = strings.Cut(after, "/")
			rest = "/" + rest
		}
		return artifactScheme + ":" + rest
	case "http", "https":
		base, err := url.Parse(c.s.Locator.BaseURL)
		_, p, ok := strings.Cut(uri, "/mlflow-artifacts/artifacts/")
		if ok && err == nil && hostOf(uri) == strings.ToLower(base.Host) {
			p, _, _ = strings.Cut(p, "?")
			return artifactScheme + ":/" + strings.Trim(p, "/")
		}
	}
	return uri
}

func unfit(what, uri string) error {
	return invalid("Invalid %s: '%s'. Clients would send their token to that host. Use a path of this server (mlflow-artifacts:/PATH), "+
		"or a storage service at an address of its own: %s, azureml.", what, uri, strings.Join(storageSchemes, ", "))
}

// proxied is the path that an artifact URI has at the proxy of this server; ok is false for other
// places.
func proxied(uri string) (string, bool) {
	rest, ok := strings.CutPrefix(uri, artifactScheme+":")
	if !ok || hostOf(uri) != "" {
		return "", false
	}
	return strings.Trim(rest, "/"), true
}
