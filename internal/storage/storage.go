// Package storage knows storage elsewhere, which datastores name: Azure's Blob service and file
// shares, S3 and what speaks like it, Google's, web servers. It reads what a datastore's document
// says and signs single requests with its credentials. It sends none itself.
package storage

import (
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/berthml/berth"
)

// The types of datastores, as documents have them. Those from S3 on are not Azure's.
const (
	AzureBlob   = "AzureBlob"
	AzureLake   = "AzureDataLakeGen2"
	AzureFile   = "AzureFile"
	S3          = "S3"
	Google      = "GoogleStorage"
	HTTP        = "Http"
	Folder      = "Folder"
	azureDomain = "core.windows.net"
)

// Types are those that data can be in. What else Azure has is kept as a document only.
var Types = []string{AzureBlob, AzureLake, AzureFile, S3, Google, HTTP, Folder}

// Own says whether a type of datastore is Berth's own, which clients of Azure do not know.
func Own(kind string) bool {
	return kind == S3 || kind == Google || kind == HTTP || kind == Folder
}

// Store is storage elsewhere: a container, file system or bucket, or what is below a URL.
type Store struct {
	Type      string
	Account   string // of Azure
	Container string
	Region    string // of S3
	// Path is the folder, where it is one on the machines themselves.
	Path string
	// base is the address of the container; name is what comes before paths in it, for people.
	base url.URL
	name string
	// prefixes are the ways to write that address.
	prefixes []string
	// endpoint says that a bucket is neither Amazon's nor Google's.
	endpoint bool
}

// Read is what the properties of a datastore's document say. A type that data cannot be in is
// Unsupported.
func Read(props map[string]any) (s *Store, err error) {
	s = &Store{Type: text(props, "datastoreType")}
	switch s.Type {
	case AzureBlob:
		err = s.readAzure(props, "containerName", "blob")
	case AzureLake:
		err = s.readAzure(props, "filesystem", "blob")
	case AzureFile:
		err = s.readAzure(props, "fileShareName", "file")
	case S3:
		err = s.readS3(props)
	case Google:
		err = s.readGoogle(props)
	case HTTP:
		err = s.readHTTP(props)
	case Folder:
		s.Path = text(props, "path")
		if !strings.HasPrefix(s.Path, "/") || strings.ContainsRune(s.Path, 0) {
			return nil, berth.Errorf(berth.Invalid, "properties.path must be the full path of a folder, not %q", s.Path)
		}
		return s, nil
	default:
		return nil, berth.Errorf(berth.Unsupported, "datastores of type %s are not supported; use one of %s", s.Type, strings.Join(Types, ", "))
	}
	if err != nil {
		return nil, err
	}
	s.prefixes = s.addresses()
	return s, nil
}

func (s *Store) readAzure(props map[string]any, container, service string) (err error) {
	s.Account = text(props, "accountName")
	if !forms().account.MatchString(s.Account) {
		return berth.Errorf(berth.Invalid, "properties.accountName must be a storage account name of letters and digits, not %q", s.Account)
	}
	if s.Container, err = nameOf(props, container); err != nil {
		return err
	}
	scheme := strings.ToLower(text(props, "protocol"))
	switch scheme {
	case "", "wasbs", "abfss":
		scheme = "https"
	case "https", "http":
	default:
		return berth.Errorf(berth.Invalid, "properties.protocol must be https or http, not %q", scheme)
	}
	endpoint := strings.TrimSuffix(text(props, "endpoint"), "/")
	if endpoint == "" {
		endpoint = azureDomain
	}
	at, err := address("properties.endpoint", scheme+"://"+endpoint)
	if err != nil {
		return err
	}
	s.base = url.URL{Scheme: scheme, Host: s.Account + "." + service + "." + at.Host, Path: "/" + s.Container}
	if _, err := netip.ParseAddr(at.Hostname()); err == nil || at.Hostname() == "localhost" {
		// An address has no names below it: the account comes first in the path, as emulators have
		// it.
		s.base.Host, s.base.Path = at.Host, "/"+s.Account+"/"+s.Container
	}
	s.name = s.base.String()
	return nil
}

func (s *Store) readS3(props map[string]any) (err error) {
	if s.Container, err = nameOf(props, "bucket"); err != nil {
		return err
	}
	if s.Region = text(props, "region"); s.Region == "" {
		s.Region = "us-east-1"
	}
	if !forms().region.MatchString(s.Region) {
		return berth.Errorf(berth.Invalid, "properties.region must be a region such as eu-west-1, not %q", s.Region)
	}
	s.name = "s3://" + s.Container
	endpoint := text(props, "endpoint")
	if endpoint == "" {
		// The dots of a bucket's name are not levels of a certificate's.
		if s.base = (url.URL{Scheme: "https", Host: s.Container + ".s3." + s.Region + ".amazonaws.com"}); strings.Contains(s.Container, ".") {
			s.base = url.URL{Scheme: "https", Host: "s3." + s.Region + ".amazonaws.com", Path: "/" + s.Container}
		}
		return nil
	}
	return s.readEndpoint(endpoint)
}

// readEndpoint is for a bucket of a server that the document names.
func (s *Store) readEndpoint(endpoint string) error {
	at, err := address("properties.endpoint", endpoint)
	if err != nil {
		return err
	}
	s.base, s.endpoint = url.URL{Scheme: at.Scheme, Host: at.Host, Path: "/" + s.Container}, true
	return nil
}

func (s *Store) readGoogle(props map[string]any) (err error) {
	if s.Container, err = nameOf(props, "bucket"); err != nil {
		return err
	}
	s.name = "gs://" + s.Container
	if endpoint := text(props, "endpoint"); endpoint != "" {
		return s.readEndpoint(endpoint)
	}
	s.base = url.URL{Scheme: "https", Host: "storage.googleapis.com", Path: "/" + s.Container}
	return nil
}

// Protocol is how the storage is spoken to.
func (s *Store) Protocol() string {
	switch s.Type {
	case AzureBlob, AzureLake:
		return berth.OutsideAzure
	case AzureFile:
		return berth.OutsideShare
	case HTTP:
		return berth.OutsideHTTP
	}
	return berth.OutsideS3
}

// azure says whether it is of a storage account of Azure's.
func (s *Store) azure() bool { return s.Account != "" }

// At is the address of a path in the storage, for people.
func (s *Store) At(path string) string {
	if path == "" {
		return s.name
	}
	return s.name + "/" + escape(path, true)
}

// Find is the path that a URI names in the storage, in one of the ways in which its users write
// them; false where it is elsewhere.
func (s *Store) Find(uri string) (path string, ok bool) {
	for _, p := range s.prefixes {
		rest, found := strings.CutPrefix(uri, p)
		if found && (rest == "" || rest[0] == '/') {
			path, err := url.PathUnescape(strings.Trim(rest, "/"))
			return path, err == nil
		}
	}
	return "", false
}

// addresses are the ways to write the address of the container. A bucket's short name, s3://BUCKET,
// is that of Amazon, or Google, and of nobody who gave a bucket elsewhere the same name.
func (s *Store) addresses() []string {
	switch {
	case s.Protocol() == berth.OutsideAzure:
	case s.Protocol() == berth.OutsideShare, s.Protocol() == berth.OutsideHTTP:
		return []string{s.name}
	case s.endpoint:
		return []string{s.base.String()}
	default:
		return []string{s.name}
	}
	list := []string{s.name}
	account, host, named := strings.Cut(s.base.Host, ".blob.")
	if !named {
		return list
	}
	for _, scheme := range []string{"wasbs", "wasb", "abfss", "abfs"} {
		for _, service := range []string{"blob", "dfs"} {
			list = append(list, scheme+"://"+s.Container+"@"+account+"."+service+"."+host)
		}
	}
	return append(list, s.base.Scheme+"://"+account+".dfs."+host+"/"+s.Container)
}

// Elsewhere says whether a URI is of a scheme that only a datastore opens.
func Elsewhere(uri string) bool {
	scheme, _, ok := strings.Cut(strings.ToLower(uri), "://")
	return ok && slices.Contains([]string{"s3", "gs", "wasbs", "wasb", "abfss", "abfs"}, scheme)
}

// form is what the names in a document must be like; they become parts of addresses.
type form struct{ account, container, region, host *regexp.Regexp }

var forms = sync.OnceValue(func() form {
	return form{
		account:   regexp.MustCompile(`^[a-z0-9-]{1,63}$`),
		container: regexp.MustCompile(`^[$a-zA-Z0-9][a-zA-Z0-9._-]{2,254}$`),
		region:    regexp.MustCompile(`^[a-z0-9-]{1,64}$`),
		host:      regexp.MustCompile(`^(\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?)(:[0-9]{1,5})?$`),
	}
})

// nameOf is the name of a container or bucket.
func nameOf(props map[string]any, key string) (string, error) {
	name := text(props, key)
	if !forms().container.MatchString(name) || strings.Contains(name, "..") {
		return "", berth.Errorf(berth.Invalid, "properties.%s must be a container or bucket name of at least 3 characters, not %q", key, name)
	}
	return name, nil
}

// address is a server: a scheme and a host.
func address(field, raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || !forms().host.MatchString(u.Host) || strings.Trim(u.Path, "/") != "" ||
		u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, berth.Errorf(berth.Invalid, "%s must have the form https://HOST[:PORT], not %q", field, raw)
	}
	return u, nil
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}
