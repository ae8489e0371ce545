package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/cli"
)

// reference is every noun and verb of the `az ml` reference. A + before a verb: this server serves
// it.
const reference = `
job +create +list +show +update +cancel +stream +download +archive +restore +validate +show-services connect-ssh
data +create +list +show +update +archive +restore share import list-materialization-status mount
environment +create +list +show +update +archive +restore share
model +create +list +show +update +archive +restore +download share package
component +create +list +show +update +archive +restore prepare-for-sign
datastore +create +list +show +update +delete mount
workspace +create +list +show +update +delete +list-keys +diagnose sync-keys provision-network outbound-rule
connection +create +list +show +update +delete
compute +create +list +show +update +delete +attach +detach +list-nodes +list-sizes +list-usage +start +stop +restart +connect-ssh enable-sso
feature-set +create +list +show +update +archive +restore backfill get-feature show-feature list-features list-materialization-operation
feature-store-entity +create +list +show +update +archive +restore
feature-store create list show update delete provision-network
schedule create list show update delete enable disable trigger
online-endpoint create list show update delete invoke get-credentials regenerate-keys
online-deployment create list show update delete get-logs
batch-endpoint create list show update delete invoke list-jobs
batch-deployment create list show update delete list-jobs
registry create list show update delete
serverless-endpoint create list show update delete get-credentials regenerate-keys
marketplace-subscription create list show delete
capability-host create show delete
index create list show archive restore
deployment-template create list show update archive restore
azure-openai-deployment list show
`

// TestReference: every command of az ml is here, or says why it is not.
func TestReference(t *testing.T) {
	for line := range strings.Lines(strings.TrimSpace(reference)) {
		words := strings.Fields(line)
		for _, verb := range words[1:] {
			verb, want := strings.CutPrefix(verb, "+")
			known, served := cli.Known(words[0], verb)
			if !known {
				t.Errorf("az ml %s %s is not known", words[0], verb)
			} else if want && !served {
				t.Errorf("az ml %s %s is not served", words[0], verb)
			}
		}
	}
}

// TestFlags: every flag of every command of az ml is taken. The list is that of extension ml
// 2.44.1; what all commands take is not in it.
func TestFlags(t *testing.T) {
	list, err := os.ReadFile(filepath.Join("testdata", "flags.txt"))
	if err != nil {
		t.Fatal(err)
	}
	common := strings.Fields("--resource-group -g --workspace-name -w --subscription --output -o --query --debug --verbose --only-show-errors " +
		"--change-reference --acquire-policy-token")
	for line := range strings.Lines(string(list)) {
		command, flags, _ := strings.Cut(strings.TrimSpace(line), ":")
		noun, verb, _ := strings.Cut(command, " ")
		for _, flag := range append(strings.Fields(flags), common...) {
			if !cli.Takes(noun, verb, flag) {
				t.Errorf("az ml %s does not take %s", command, flag)
			}
		}
	}
}
