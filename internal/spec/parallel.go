package spec

import (
	"encoding/json"
	"strconv"
	"strings"
)

// parallelCommon are the fields that a parallel component and a parallel node share.
var parallelCommon = lazyParts(func() parts {
	return parts{
		f("task", parallelTask),
		f("input_data", text),
		f("logging_level", exactEnum("DEBUG", "INFO", "WARNING")),
		f("max_concurrency_per_instance", whole),
		f("error_threshold", whole),
		f("mini_batch_error_threshold", whole),
		f("retry_settings", retrySettings),
	}
})

var parallelTask = later(parallelTaskParts)

func parallelTaskParts() []part {
	return []part{
		drop,
		f("type", enum("run_function", "model", "function"), required),
		f("code", componentCode),
		f("entry_script", text),
		f("program_arguments", text),
		f("model", text),
		f("append_row_to", text),
		f("environment", componentEnvironment, required),
	}
}

var retrySettings = later(retrySettingsParts)

func retrySettingsParts() []part {
	return []part{
		drop,
		retryFields,
	}
}

var retryFields = lazyParts(func() parts {
	return parts{
		f("timeout", whole),
		f("max_retries", whole),
	}
})

var parallelComponent = later(parallelComponentParts)

func parallelComponentParts() []part {
	return []part{
		drop,
		componentCommon,
		f("type", enum("parallel"), required),
		parallelCommon,
		f("resources", componentResources),
		f("mini_batch_size", batchSize(func(n int64) any { return strconv.FormatInt(n, 10) })),
		f("partition_keys", keysText),
		then(func(s *scope, v *value) {
			if !v.has("mini_batch_size") {
				s.out["mini_batch_size"] = "0"
			}
		}),
	}
}

var batchForm = re(`^(\d+)([kKmMgG][bB])?$`)

// batchSize is a number of files, or of bytes with a unit.
func batchSize(send func(int64) any) typ {
	return typ{name: "a number of files or bytes", readFunc: func(s *scope, v *value) any {
		t, ok := readText(s, v).(string)
		if !ok {
			return nil
		}
		m := batchForm.FindStringSubmatch(t)
		if m == nil {
			s.fail(v, `%s is not a size; write "5" for files or "10kb", "1mb", "1gb" for bytes`, describe(v))
			return nil
		}
		n, err := strconv.ParseInt(m[1], 10, 64)
		unit := map[string]int64{"": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}[strings.ToLower(m[2])]
		if err != nil || n > (1<<62)/unit {
			s.fail(v, "%s is too large", describe(v))
			return nil
		}
		return send(n * unit)
	}}
}

// keysText is a list of partition keys as JSON text, with a blank after each comma.
var keysText = typ{name: "a list", readFunc: func(s *scope, v *value) any {
	items, ok := listOf(text).read(s, v).([]any)
	if !ok {
		return nil
	}
	words := make([]string, 0, len(items))
	for _, it := range items {
		b, err := json.Marshal(it)
		if err != nil {
			return nil
		}
		words = append(words, string(b))
	}
	return "[" + strings.Join(words, ", ") + "]"
}}
