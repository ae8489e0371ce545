// Package mutate makes documents that are almost right, for tests of whatever takes them.
package mutate

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
)

// Sound are documents that are taken as they are, by their collection, or by their whole path where
// versions are part of it. They refer to environment e:1, data d:1 and component c:1.
var Sound = map[string][]string{
	"jobs": {
		`{"properties":{"jobType":"Command","command":"echo ${{inputs.a}}","computeId":"local","environmentId":"azureml:e:1","experimentName":"x","tags":{"a":"b"},
			"inputs":{"a":{"jobInputType":"literal","value":"1"},"d":{"jobInputType":"uri_folder","uri":"azureml:d:1","mode":"Download"}},
			"outputs":{"o":{"jobOutputType":"uri_folder","mode":"ReadWriteMount","assetName":"made"}},"limits":{"jobLimitsType":"Command","timeout":"PT5M"},
			"resources":{"instanceCount":1,"instanceType":"Standard_DS3_v2","shmSize":"2g"},"distribution":{"distributionType":"PyTorch","processCountPerInstance":1},
			"queueSettings":{"jobTier":"Spot","priority":1},"environmentVariables":{"A":"b"},"identity":{"identityType":"AMLToken"},"services":{"s":{"jobServiceType":"ssh"}}}}`,
		`{"properties":{"jobType":"Pipeline","settings":{"default_compute":"local","continue_on_step_failure":true},"inputs":{"n":{"jobInputType":"literal","value":"5"}},
			"outputs":{"o":{"jobOutputType":"uri_folder"}},"jobs":{"a":{"type":"command","componentId":"azureml:c:1","inputs":{"i":{"job_input_type":"literal","value":"${{parent.inputs.n}}"}},
			"outputs":{"o":{"value":"${{parent.outputs.o}}","type":"literal"}}}}}}`,
	},
	"computes": {
		`{"location":"local","tags":{"berth.jobs_per_node":"2"},"properties":{"computeType":"AmlCompute","description":"d","properties":{"vmSize":"Standard_DS3_v2","vmPriority":"LowPriority",
			"scaleSettings":{"minNodeCount":0,"maxNodeCount":2,"nodeIdleTimeBeforeScaleDown":"PT120S"},"subnet":{"id":"x"},"enableNodePublicIp":true}}}`,
		`{"location":"local","properties":{"computeType":"ComputeInstance","properties":{"vmSize":"Standard_DS1_v2","idleTimeBeforeShutdown":"PT30M","sshSettings":{"sshPublicAccess":"Enabled"},
			"schedules":{"computeStartStop":[{"action":"Stop","cron":{"expression":"0 18 * * *","timeZone":"UTC","startTime":"2026-01-01T00:00:00"},"triggerType":"Cron","status":"Enabled"}]}}}}`,
	},
	"datastores":                 {`{"properties":{"datastoreType":"AzureBlob","accountName":"a","containerName":"c","endpoint":"core.windows.net","protocol":"https","credentials":{"credentialsType":"AccountKey","secrets":{"secretsType":"AccountKey","key":"aGk="}}}}`},
	"codes/k/versions/1":         {`{"properties":{"codeUri":"https://x/y","properties":{"hash_sha256":"ab","hash_version":"1"}}}`},
	"environments/e2/versions/1": {`{"properties":{"image":"x","condaFile":"dependencies: []","osType":"Linux","build":null,"inferenceConfig":{"livenessRoute":{"port":1,"path":"/"}}}}`},
	"data/d2/versions/1":         {`{"properties":{"dataType":"uri_folder","dataUri":"azureml://datastores/workspaceblobstore/paths/a/","tags":{},"isArchived":false}}`},
	"models/m/versions/1":        {`{"properties":{"modelType":"custom_model","modelUri":"azureml://datastores/workspaceblobstore/paths/a/","flavors":{"f":{"data":{"a":"b"}}}}}`},
	"components/c2/versions/1":   {`{"properties":{"componentSpec":{"type":"command","name":"c2","version":"1","command":"echo ${{inputs.i}}","environment":"azureml:e:1","inputs":{"i":{"type":"string","default":"x","optional":true}},"outputs":{"o":{"type":"uri_folder"}},"resources":{"instance_count":2},"distribution":{"type":"mpi","process_count_per_instance":2}}}}`},
	"connections":                {`{"properties":{"category":"PythonFeed","authType":"PAT","target":"https://x","credentials":{"pat":"secret"},"metadata":{"a":"b"}}}`},
	"onlineEndpoints":            {`{"location":"local","tags":{"a":"b"},"identity":{"type":"SystemAssigned"},"properties":{"authMode":"Key","description":"d","traffic":{"blue":0},"mirrorTraffic":{"green":0},"keys":{"primaryKey":"a","secondaryKey":"b"}}}`},
	"batchEndpoints":             {`{"location":"local","properties":{"authMode":"AADToken","defaults":{"deploymentName":"d"},"properties":{"a":"b"}}}`},
	"schedules":                  {`{"properties":{"displayName":"n","isEnabled":true,"trigger":{"triggerType":"Cron","expression":"0 8 * * *","timeZone":"UTC"},"action":{"actionType":"CreateJob","jobDefinition":{"jobType":"Command","command":"true"}}}}`},
	"featuresets/f/versions/1":   {`{"properties":{"entities":["a"],"specification":{"path":"x"},"materializationSettings":{"schedule":null}}}`},
}

// Document is one of the documents of a collection with something changed in it.
func Document(rng *rand.Rand, collection string) []byte {
	docs := Sound[collection]
	var doc any
	if err := json.Unmarshal([]byte(docs[rng.IntN(len(docs))]), &doc); err != nil {
		panic(err)
	}
	for range 1 + rng.IntN(3) {
		doc = mutate(rng, doc)
	}
	b, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return b
}

func mutate(rng *rand.Rand, v any) any {
	odd := []any{
		nil, true, "", "x", " ", "a/b", "../..", "${{", "${{inputs.}}", "azureml:", "azureml:x", "azureml:e@latest", "local:x", "PT", "P1Y", "-PT5M", "\u0000", "\x1b[2J",
		strings.Repeat("y", 5000), -1.0, 0.0, 1e308, 0.5, 99999999999.0,
		[]any{},
		[]any{nil},
		map[string]any{},
		map[string]any{"": nil},
		map[string]any{"a": map[string]any{"b": []any{1.0}}},
	}
	switch x := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(x))
		for k := range x {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		if len(keys) == 0 || rng.IntN(8) == 0 {
			x[[]string{"odd", "type", "name", "jobType", "id", "properties"}[rng.IntN(6)]] = odd[rng.IntN(len(odd))]
			return x
		}
		k := keys[rng.IntN(len(keys))]
		switch rng.IntN(6) {
		case 0:
			delete(x, k)
		case 1:
			x[strings.ToUpper(k)] = x[k]
		default:
			x[k] = mutate(rng, x[k])
		}
		return x
	case []any:
		if len(x) > 0 && rng.IntN(2) == 0 {
			i := rng.IntN(len(x))
			x[i] = mutate(rng, x[i])
			return x
		}
	}
	return odd[rng.IntN(len(odd))]
}
