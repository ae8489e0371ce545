package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// environment is where a command runs: a reference, an inline definition, or a file: with one.
var environment = typ{name: "an environment", showFunc: showAsset, readFunc: func(s *scope, v *value) any {
	if s.bind && v.shape == str && bound(v.text) {
		return v.text
	}
	switch {
	case v.shape == mapping:
		return s.anonymousEnvironment(v)
	case v.shape != str:
		s.fail(v, "must be a reference (azureml:NAME:VERSION) or a mapping, not %s", v.shape)
	case strings.HasPrefix(v.text, "file:"):
		if w := s.follow(v, strings.TrimPrefix(v.text, "file:")); w != nil {
			return s.anonymousEnvironment(w)
		}
	case registryForm.MatchString(v.text):
		return v.text
	case s.checkAsset(v, "environments", !strings.HasPrefix(v.text, "azureml:AzureML-")):
		return s.assetID("environments", v.text)
	}
	return nil
}}

// anonymousName is what inline environments are called.
const anonymousName = "CliV2AnonymousEnvironment"

// anonymousEnvironment makes the resource an inline environment becomes and gives its id. Equal
// ones are one.
func (s *scope) anonymousEnvironment(v *value) any {
	d := &draft{collection: "environments", body: tree{}, anonymous: true, name: anonymousName}
	sub := &scope{load: s.load, draft: d, out: d.body, field: s.field}
	m := sub.mark()
	environmentBody.table.fill(sub.into(d.body.sub("properties")), v.without("name", "version"))
	if sub.failed(m) {
		return nil
	}
	props := d.body.sub("properties")
	props["isAnonymous"] = true
	d.name = anonymousName
	d.version = environmentHash(props, v)
	s.keep(d)
	return s.workspace().ResourceID("environments", d.name, "versions", d.version)
}

// keep adds an anonymous resource unless an equal one is there.
func (l *load) keep(d *draft) {
	key := d.collection + "/" + d.name + "/" + d.version
	if l.known[key] == nil {
		l.known[key] = d
		l.made = append(l.made, d)
	}
}

// environmentHash is the version of an inline environment: a hash of what it is made of, so that
// equal ones meet.
func environmentHash(props tree, v *value) string {
	image, conda := props.text("image"), props.text("condaFile")
	if props["build"] == nil && props["inferenceConfig"] == nil {
		// The reference client's way, so that its environments and ours meet.
		sum := hexSum(image)
		if conda != "" {
			sum = strings.Join(strings.Split(hexSum(conda), ""), sum)
		}
		return hexSum(sum)
	}
	h := sha256.New()
	h.Write([]byte(image + "\x00" + conda + "\x00" + props.text("description")))
	if inf, ok := props["inferenceConfig"]; ok {
		b, _ := encode(inf)
		h.Write(b)
	}
	if b, ok := asTree(props["build"]); ok {
		from := b.text("contextUri")
		if path := v.get("build").textOf("path"); path != "" {
			from = Upload{Path: resolvePath(v, path)}.fingerprint()
		}
		h.Write([]byte(from + "\x00" + b.text("dockerfilePath")))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func hexSum(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func resolvePath(v *value, path string) string { return (&scope{}).resolve(v, path) }

var environmentKind = kind{word: "environment", collection: "environments", base: "properties", body: later(func() []part {
	return []part{
		f("name", text, to("@name"), required),
		f("version", version, to("@version")),
		more(environmentBody),
	}
})}

var environmentBody = later(environmentBodyParts)

func environmentBodyParts() []part {
	return []part{
		readonly("creation_context", "latest_version", "intellectual_property"),
		f("id", ownID("environments", false), unsent),
		f("image", text),
		f("build", buildContext),
		f("conda_file", condaFile),
		f("os_type", enum("linux", "windows")),
		f("inference_config", inferenceConfig),
		f("description", text),
		f("tags", namedMap),
		f("datastore", text, unsent),
		f("auto_delete_setting", autoDelete, unsent),
		is("isArchived", false),
		is("isAnonymous", false),
		first(func(s *scope, v *value) *value {
			if v.get("channels") != nil || v.get("dependencies") != nil {
				s.fail(v, "this is a conda file; refer to it with conda_file in an environment")
				return nil
			}
			return v
		}),
		then(func(s *scope, v *value) {
			image, build := v.has("image"), v.has("build")
			switch {
			case !image && !build:
				s.fail(v, "an environment requires image or build")
			case image && build:
				s.in("build").fail(v.get("build"), "image and build cannot be used together; remove one of them")
			}
		}),
	}
}

var buildContext = later(buildContextParts)

func buildContextParts() []part {
	return []part{
		f("path", contextPath, to("contextUri")),
		f("dockerfile_path", text),
	}
}

var contextPath = typ{name: "a folder", readFunc: func(s *scope, v *value) any {
	path, ok := readText(s, v).(string)
	if !ok {
		return nil
	}
	if abs := s.resolve(v, path); exists(abs) {
		return s.upload(v, Upload{Kind: "context", Path: abs})
	}
	if webForm.MatchString(path) {
		return path
	}
	s.fail(v, "%s does not exist (looked for %s)", path, s.resolve(v, path))
	return nil
}}

// condaFile is a conda definition, inline or in a file; the service takes its text, keys sorted.
var condaFile = typ{name: "a path or a mapping", readFunc: func(s *scope, v *value) any {
	w := v
	if v.empty() {
		return nil
	}
	if v.shape == str {
		if w = s.follow(v, v.text); w == nil {
			return nil
		}
	} else if v.shape != mapping {
		s.fail(v, "must be the path of a conda file or a mapping, not %s", v.shape)
		return nil
	}
	return dumpYAML(w)
}, showFunc: func(j any) any {
	text, ok := j.(string)
	if !ok {
		return j
	}
	if v, err := decodeAny([]byte(text), &document{}); err == nil {
		return v.raw()
	}
	return j
}}

var inferenceConfig = later(inferenceConfigParts)

func inferenceConfigParts() []part {
	return []part{
		f("liveness_route", route, required),
		f("readiness_route", route, required),
		f("scoring_route", route, required),
	}
}

var route = later(routeParts)

func routeParts() []part {
	return []part{
		f("port", whole, required),
		f("path", text, required),
	}
}

var autoDelete = later(autoDeleteParts)

func autoDeleteParts() []part {
	return []part{
		f("condition", looseEnum("created_greater_than=createdGreaterThan", "last_accessed_greater_than=lastAccessedGreaterThan"), def("createdGreaterThan")),
		f("value", text),
	}
}
