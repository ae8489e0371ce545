package spec

import (
	"path/filepath"
	"strings"
)

var sparkJob = later(sparkJobParts)

func sparkJobParts() []part {
	return []part{
		is("jobType", "Spark"),
		f("type", enum("spark"), required, unsent),
		f("name", lowerName, to("@name")),
		f("code", code, to("codeId")),
		f("entry", sparkEntry, required),
		sparkFiles,
		f("conf", confMap),
		f("args", text),
		f("environment", sparkEnvironment, to("environmentId"), nullable),
		f("resources", sparkResources),
		f("properties", freeMap, unsent),
		is("properties", tree{}),
		f("inputs", inputs, def(tree{})),
		f("outputs", outputs, def(tree{})),
		f("services", mapOf(service), unsent),
		jobCommon,
		first(fullConf),
		then(func(s *scope, v *value) {
			s.sparkChecks(v, v.get("conf"), v.get("entry"), v.get("code"))
			s.sparkModes(v, nil)
			s.registryCode(v.get("code"))
			if size := v.get("resources").textOf("instance_type"); size != "" {
				s.out.put("resources.instanceType", size)
			}
			conf := sparkConf(v.get("conf"), true)
			for k, val := range conf {
				switch x := val.(type) {
				case number:
					conf[k] = string(x)
				case bool:
					conf[k] = map[bool]string{true: "True", false: "False"}[x]
				}
			}
			s.out["conf"] = conf
			s.sparkIdentity(v)
			if args := v.get("args"); args != nil {
				s.in("args").checkExpressions(args, args.text, map[string]*value{"inputs": v.get("inputs")})
			}
		}),
	}
}

// sparkEnvironment is an environment whose image does not matter: Spark has its own. Without one it
// is what its conda file says.
var sparkEnvironment = typ{name: environment.name, showFunc: environment.showFunc, readFunc: func(s *scope, v *value) any {
	if path, ok := strings.CutPrefix(v.text, "file:"); ok && v.shape == str {
		if v = s.follow(v, path); v == nil {
			return nil
		}
	}
	if v.shape == mapping && !v.has("image") {
		image := v.newText("conda/miniconda3")
		checked(environment).read(s, v.without("build").with("image", image))
		if build := v.get("build"); build != nil {
			checked(buildContext).read(s.in("build"), build)
		}
		v = v.only([]string{"conda_file"}).with("image", image)
	}
	return environment.read(s, v)
}}

// shortConf are the other names of some settings of Spark.
var shortConf = lazy[map[string]string]{make: func() map[string]string {
	return map[string]string{
		"driver_cores": "spark.driver.cores", "driver_memory": "spark.driver.memory",
		"executor_cores": "spark.executor.cores", "executor_memory": "spark.executor.memory", "executor_instances": sparkCount,
		"dynamic_allocation_enabled": sparkDynamic, "dynamic_allocation_min_executors": sparkMin, "dynamic_allocation_max_executors": sparkMax,
	}
}}

// fullConf is v with the settings in conf under Spark's own names.
func fullConf(_ *scope, v *value) *value {
	conf := v.get("conf")
	for _, p := range conf.entries() {
		if full, ok := shortConf.get()[p.key]; ok {
			conf = conf.without(p.key)
			if !conf.has(full) { // the full name has the say
				conf = conf.with(full, p.val)
			}
		}
	}
	if conf == nil || conf == v.get("conf") {
		return v
	}
	return v.with("conf", conf)
}

// confMap holds settings of any type, none of them null.
var confMap = mapOf(typ{name: "a value", readFunc: func(_ *scope, v *value) any { return v.raw() }})

// sparkFiles are the further files of a Spark job, each at most once.
var sparkFiles = lazyParts(func() parts {
	return parts{
		f("py_files", distinct), f("jars", distinct), f("files", distinct), f("archives", distinct),
	}
})

var distinct = typ{name: "a list", solid: true, readFunc: func(s *scope, v *value) any {
	seen := map[string]bool{}
	for _, it := range v.items {
		if it.shape == str && seen[it.text] {
			s.fail(it, "%s is listed twice", it.text)
		}
		seen[it.text] = true
	}
	return listOf(text).read(s, v)
}}

var sparkEntry = later(sparkEntryParts)

func sparkEntryParts() []part {
	return []part{
		is("sparkJobEntryType", "SparkJobPythonEntry"),
		readonly("spark_job_entry_type"),
		f("file", text, required),
	}
}

var sparkResources = later(sparkResourcesParts)

func sparkResourcesParts() []part {
	return []part{
		f("instance_type", enum("standard_e4s_v3", "standard_e8s_v3", "standard_e16s_v3", "standard_e32s_v3", "standard_e64s_v3"), required),
		f("runtime_version", numberVersion, required),
	}
}

// numberVersion is a version of numbers and dots.
var numberVersion = typ{name: "a version", readFunc: func(s *scope, v *value) any {
	t, ok := readVersion(s, v).(string)
	if !ok {
		return nil
	}
	for _, part := range strings.Split(t, ".") {
		if !wholeForm.MatchString(part) {
			s.fail(v, "%s is not a valid version; write one such as 3.4.0", describe(v))
			return nil
		}
	}
	return t
}}

// The settings every Spark job has, and those of dynamic allocation.
var (
	sparkMust    = []string{"spark.driver.cores", "spark.driver.memory", "spark.executor.cores", "spark.executor.memory"}
	sparkDynamic = "spark.dynamicAllocation.enabled"
	sparkMin     = "spark.dynamicAllocation.minExecutors"
	sparkMax     = "spark.dynamicAllocation.maxExecutors"
	sparkCount   = "spark.executor.instances"
)

func dynamic(conf *value) bool {
	v := conf.get(sparkDynamic)
	return v != nil && (v.shape == boolean && v.yes || v.shape == str && strings.EqualFold(v.text, "true"))
}

// sparkConf is conf as it travels: text of digits as numbers; running says that it is for a job
// rather than a component, which settles the number of executors and drops a disabled dynamic
// allocation.
func sparkConf(conf *value, running bool) tree {
	out := tree{}
	for _, p := range conf.entries() {
		val := p.val.raw()
		if knownConf(p.key) && p.val.shape != integer && p.val.empty() {
			continue
		}
		if t, ok := val.(string); ok && knownConf(p.key) && t != "" && strings.Trim(t, "0123456789") == "" {
			val = number(t)
		}
		out[p.key] = val
	}
	if !running {
		return out
	}
	if dynamic(conf) {
		out[sparkDynamic] = true
		if out[sparkCount] == nil && out[sparkMin] != nil {
			out[sparkCount] = out[sparkMin]
		}
	} else {
		delete(out, sparkDynamic)
	}
	return out
}

// sparkChecks are the rules over several fields of a Spark job or node.
func (s *scope) sparkChecks(v, conf, entry, code *value) {
	here := s.in("conf")
	at := or(conf, v)
	for _, key := range sparkMust {
		if !conf.has(key) || conf.get(key).empty() {
			here.fail(at, "%s is required", key)
		}
	}
	if dynamic(conf) {
		lo, ok1 := numberAt(conf, sparkMin)
		hi, ok2 := numberAt(conf, sparkMax)
		if !conf.has(sparkMin) || !conf.has(sparkMax) {
			here.fail(at, "%s and %s are required when dynamic allocation is enabled", sparkMin, sparkMax)
		} else if ok1 && ok2 && (lo <= 0 || lo > hi) {
			here.fail(conf.get(sparkMin), "%s must be at least 1 and at most %s", sparkMin, sparkMax)
		} else if n, ok := numberAt(conf, sparkCount); ok && n != 0 && (n < lo || n > hi) {
			here.fail(conf.get(sparkCount), "%s must be between %s and %s", sparkCount, sparkMin, sparkMax)
		}
	} else {
		if !conf.has(sparkCount) {
			here.fail(at, "%s is required", sparkCount)
		}
		if conf.has(sparkMin) || conf.has(sparkMax) {
			here.fail(at, "%s and %s require %s: true", sparkMin, sparkMax, sparkDynamic)
		}
	}
	if has := v.has("compute"); has == v.has("resources") {
		if has {
			s.in("resources").fail(v.get("resources"), "compute and resources cannot be used together; remove one of them")
		} else {
			s.in("resources").fail(v, "a Spark job requires compute or resources")
		}
	}
	s.sparkEntryFile(entry, code)
}

// empty says whether v is what Python takes for false: "", 0, False, [], {}.
func (v *value) empty() bool {
	switch v.shape {
	case null:
		return true
	case str:
		return v.text == ""
	case list:
		return len(v.items) == 0
	case mapping:
		return len(v.pairs) == 0
	case integer:
		return v.num.Sign() == 0
	case boolean:
		return !v.yes
	}
	return false
}

func numberAt(conf *value, key string) (int64, bool) {
	v := conf.get(key)
	if v == nil {
		return 0, false
	}
	n, ok := wholeOf(v)
	if !ok || !n.IsInt64() {
		return 0, false
	}
	return n.Int64(), true
}

// sparkEntryFile checks that the entry file lies below local code.
func (s *scope) sparkEntryFile(entry, code *value) {
	file := entry.get("file")
	if file == nil || file.shape != str || code == nil || code.shape != str || remote(code.text) || strings.HasPrefix(code.text, "git+") {
		return
	}
	base := s.resolve(code, code.text)
	if exists(base) && !exists(filepath.Join(base, file.text)) {
		s.in("entry.file").fail(file, "%s does not exist in %s", file.text, code.text)
	}
}

// sparkModes checks that inputs and outputs are direct. declared is the component, for what a node
// leaves open.
func (s *scope) sparkModes(v, declared *value) {
	for _, group := range []string{"inputs", "outputs"} {
		for _, p := range v.get(group).entries() {
			if p.val.shape != mapping || p.val.get("value") != nil || p.key == "default" && group == "outputs" {
				continue
			}
			path := p.val.textOf("path")
			if pre := "${{parent." + group; declared != nil && (strings.HasPrefix(path, pre) || strings.HasPrefix(path, "${{parent.jobs")) {
				continue
			}
			mode := p.val.textOf("mode")
			if declared != nil && (!declared.get(group).has(p.key) || declared.get(group).get(p.key).textOf("mode") == "direct") {
				continue
			}
			if !strings.EqualFold(mode, "direct") {
				s.in(group+"."+p.key).fail(p.val, "must have mode: direct in a Spark job")
			}
		}
	}
}

// sparkIdentity fills in the identity a Spark job runs as.
func (s *scope) sparkIdentity(v *value) {
	if s.out["identity"] != nil {
		return
	}
	word := "UserIdentity"
	if v.has("compute") && !v.has("resources") {
		word = "Managed"
	}
	s.out["identity"] = tree{s.dest(&field{to: "identityType"}): word}
}

var sparkComponent = later(sparkComponentParts)

func sparkComponentParts() []part {
	return []part{
		keep,
		componentCommon,
		f("type", enum("spark"), required),
		f("code", componentCode),
		f("entry", obj(readonly("spark_job_entry_type"), f("file", text, required)), required),
		sparkFiles,
		f("conf", typ{name: "a mapping", readFunc: func(s *scope, v *value) any {
			if confMap.read(s, v) == nil {
				return nil
			}
			return sparkConf(v, false)
		}}),
		f("args", text),
		f("environment", prefixed(sparkEnvironment), nullable),
		f("additional_includes", listOf(text)),
		f("properties", freeMap),
		first(fullConf),
		first(func(s *scope, v *value) *value {
			if v.get("code") == nil { // the folder of the file
				return v.with("code", v.newText("."))
			}
			return v
		}),
		then(func(s *scope, v *value) { s.includes(v) }),
	}
}
