package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

const here = "/subscriptions/sub/providers/Microsoft.MachineLearningServices/locations/here/"

// named is the item of a list by a member's value.
func named(t *testing.T, a answer, member, value string) map[string]any {
	t.Helper()
	for _, v := range a.want(200).body["value"].([]any) {
		if m := v.(map[string]any); m[member] == value {
			return m
		}
	}
	return nil
}

func TestVMSizes(t *testing.T) {
	x := open(t)
	all := x.do("GET", here+"vmSizes", nil)
	want := map[string]any{
		"name": "Standard_DS3_v2", "family": "standardDSv2Family", "vCPUs": 4.0, "gpus": 0.0, "osVhdSizeMB": 1047552.0,
		"maxResourceVolumeMB": 28672.0, "memoryGB": 14.0, "lowPriorityCapable": true, "premiumIO": true,
		"supportedComputeTypes": []any{"AmlCompute", "ComputeInstance"},
		"estimatedVMPrices": map[string]any{"billingCurrency": "USD", "unitOfMeasure": "OneHour", "values": []any{
			map[string]any{"retailPrice": 0.293, "osType": "Linux", "vmTier": "Standard"},
			map[string]any{"retailPrice": 0.05, "osType": "Linux", "vmTier": "LowPriority"},
		}},
	}
	if d := cmp.Diff(want, named(t, all, "name", "Standard_DS3_v2")); d != "" {
		t.Error(d)
	}
	// What nobody knows is not there.
	if d := named(t, all, "name", "Standard_D2_v3")["estimatedVMPrices"].(map[string]any)["values"].([]any); len(d) != 1 {
		t.Errorf("a low-priority price of Standard_D2_v3: %v", d)
	}
	if named(t, x.do("GET", here+"vmSizes?computeType=ComputeInstance", nil), "name", "Standard_D1_v2") != nil {
		t.Error("Standard_D1_v2 is for clusters only")
	}
	x.do("POST", here+"vmSizes", "{}").want(405)
}

func TestOwnSizes(t *testing.T) {
	x := open(t)
	user := x.token("u", auth.User)
	box := map[string]any{"vCPUs": 64, "memoryGB": 512, "gpus": 2, "gpu": "NVIDIA L40S", "price": 1.25, "currency": "EUR", "locations": []string{"cellar"}}
	x.as(user, "PUT", "/berth/v1/sizes/box", box).want(403).says("administrator")
	x.do("PUT", "/berth/v1/sizes/box", box).want(201).is("own", true).is("vCPUs", 64.0)
	x.do("PUT", "/berth/v1/sizes/box", box).want(200)
	x.as(user, "GET", "/berth/v1/sizes/BOX", nil).want(200).is("name", "box")
	if named(t, x.do("GET", here+"vmSizes", nil), "name", "box") != nil {
		t.Error("the cellar's machine is here")
	}
	cellar := strings.Replace(here, "/here/", "/cellar/", 1)
	if named(t, x.as(user, "GET", cellar+"vmSizes", nil), "name", "box") == nil {
		t.Error("the cellar's machine is not there")
	}
	if named(t, x.do("GET", "/berth/v1/sizes?location=here", nil), "name", "box") != nil {
		t.Error("the cellar's machine is here")
	}
	// A price of its own, until it is taken back.
	x.do("PUT", "/berth/v1/sizes/standard_ds3_v2", `{"price": 0.1}`).want(201).is("name", "Standard_DS3_v2").is("price", 0.1).is("lowPrice", 0.05)
	x.do("PUT", "/berth/v1/sizes/standard_ds3_v2", `{"price": 0.01}`).want(400).says("more than price")
	x.do("PUT", "/berth/v1/sizes/standard_ds3_v2", `{"vCPUs": 8}`).want(400).says("another name")
	x.as(user, "DELETE", "/berth/v1/sizes/Standard_DS3_v2", nil).want(403)
	x.do("DELETE", "/berth/v1/sizes/Standard_DS3_v2", nil).want(200)
	x.do("DELETE", "/berth/v1/sizes/Standard_DS3_v2", nil).want(404)
	x.do("GET", "/berth/v1/sizes/Standard_DS3_v2", nil).want(200).is("price", 0.293)
	x.do("GET", "/berth/v1/sizes/Standard_DS3v2", nil).want(404).says("did you mean Standard_DS3_v2")
	x.do("PUT", "/berth/v1/sizes/bad%20name", box).want(400)
	// Who did what is on record, for administrators.
	if raw := string(x.do("GET", "/berth/v1/events", nil).want(200).raw); !strings.Contains(raw, "sizes/box") || !strings.Contains(raw, "size deleted by root") {
		t.Errorf("no trace: %s", raw)
	}
	x.as(user, "GET", "/berth/v1/events", nil).want(403)
}

// node puts a live node into the store, as the control loop does.
func (x *house) node(name, family string, vcpus int, low bool, user string) {
	x.t.Helper()
	own, err := json.Marshal(berth.Node{Name: name, Workspace: workspace.Key(), Family: family, VCPUs: vcpus, Low: low, User: user, State: berth.NodeIdle})
	if err != nil {
		x.t.Fatal(err)
	}
	err = x.db.Update(x.t.Context(), func(tx *store.Tx) error {
		return tx.Insert(&store.Doc{Workspace: workspace.Key(), Kind: "nodes", Name: name, Own: own})
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

func TestUsages(t *testing.T) {
	x := open(t)
	x.node("n1", "standardDSv2Family", 4, false, "ann")
	x.node("n2", "standardDSv2Family", 8, true, "ann")
	x.do("POST", here+"updateQuotas", fmt.Sprintf(`{"value":[{"id":%q,"type":"Microsoft.MachineLearningServices/workspaces/quotas","limit":24,"unit":"Count"}]}`,
		x.ws+"/quotas/Standard_DSv2_Family_Cluster_Dedicated_vCPUs")).want(200).is("value.0.status", "Success")
	use := x.do("GET", here+"usages", nil)
	for id, want := range map[string][2]float64{
		"totalDedicatedCores /subscriptions/sub":                                      {4, -1},
		"totalLowPriorityCores /subscriptions/sub":                                    {8, -1},
		"vmFamily/dedicatedCores /subscriptions/sub/usages/standardDSv2Family":        {4, 24},
		"vmFamily/lowPriorityCores /subscriptions/sub/usages/standardDSv2Family":      {8, -1},
		"vmFamily/dedicatedCores /subscriptions/sub/usages/standardNCSv3Family":       {0, 0},
		"workspaces/dedicatedCores " + x.ws + "/usages/standardDSv2Family":            {4, 24},
		"workspaces/lowPriorityCores " + x.ws + "/usages/standardDSv2Family":          {8, -1},
		"vmFamily/dedicatedCores /subscriptions/sub/usages/Standard NCASv3_T4 Family": {0, 0},
	} {
		typ, id, _ := strings.Cut(id, " ")
		found := false
		for _, v := range use.want(200).body["value"].([]any) {
			m := v.(map[string]any)
			if m["id"] != id || m["type"] != "Microsoft.MachineLearningServices/"+typ+"/usages" {
				continue
			}
			found = true
			if m["currentValue"] != want[0] || m["limit"] != want[1] || m["unit"] != "Count" || m["amlWorkspaceLocation"] != "here" {
				t.Errorf("%s: %v", id, m)
			}
		}
		if !found {
			t.Errorf("no %s %s", typ, id)
		}
	}
	name := named(t, use, "id", x.ws+"/usages/standardDSv2Family")["name"]
	if d := cmp.Diff(map[string]any{"value": "standardDSv2Family", "localizedValue": "Standard DSv2 Family Cluster Dedicated vCPUs"}, name); d != "" {
		t.Error(d)
	}
	// Elsewhere nothing is used.
	if u := named(t, x.do("GET", strings.Replace(here, "/here/", "/there/", 1)+"usages", nil), "id", "/subscriptions/sub/usages/standardDSv2Family"); u["currentValue"] != 0.0 {
		t.Errorf("there: %v", u)
	}
}

func TestUpdateQuotas(t *testing.T) {
	x := open(t)
	x.do("PUT", "/subscriptions/sub/resourceGroups/Group/providers/Microsoft.MachineLearningServices/workspaces/far", `{"location":"there"}`)
	x.put("computes", "busy", `{"properties":{"computeType":"AmlCompute","properties":{"vmSize":"Standard_DS4_v2","scaleSettings":{"minNodeCount":2,"maxNodeCount":4}}}}`)
	x.do("POST", x.ws+"/quotas", `{"family":"standardDv2Family","server":true,"vCPUs":50}`).want(200)
	set := func(id, typ string, limit int) string {
		t.Helper()
		a := x.do("POST", here+"updateQuotas", map[string]any{"location": "here", "value": []any{map[string]any{"id": id, "type": typ, "limit": limit, "unit": "Count"}}})
		a.want(200).is("value.0.id", id)
		return a.at("value.0.status").(string)
	}
	const dedicated, low = "Microsoft.MachineLearningServices/workspaces/dedicatedCores/quotas", "Microsoft.MachineLearningServices/workspaces/lowPriorityCores/quotas"
	for _, c := range []struct {
		id, typ string
		limit   int
		want    string
	}{
		{x.ws + "/quotas/standardDSv2Family", dedicated, 15, "InvalidQuotaBelowClusterMinimum"},
		{x.ws + "/quotas/standardDSv2Family", dedicated, 16, "Success"},
		{x.ws + "/quotas/standardDSv2Family", low, 4, "Success"},
		{x.ws + "/quotas/StandardDv2Family", dedicated, 51, "InvalidQuotaExceedsSubscriptionLimit"},
		{x.ws + "/quotas/StandardDv2Family", dedicated, 50, "Success"},
		{x.ws + "/quotas/standardNoSuchFamily", dedicated, 5, "InvalidVMFamilyName"},
		{strings.Replace(x.ws, "/lab", "/far", 1) + "/quotas/standardDSv2Family", dedicated, 5, "OperationNotEnabledForRegion"},
		{strings.Replace(x.ws, "/lab", "/gone", 1) + "/quotas/standardDSv2Family", dedicated, 5, "Failure"},
		{x.ws + "/quotas/standardDSv2Family", dedicated, -5, "Failure"},
		{"nonsense", dedicated, 5, "Failure"},
	} {
		if got := set(c.id, c.typ, c.limit); got != c.want {
			t.Errorf("%s %s %d: %s, want %s", c.id, c.typ, c.limit, got, c.want)
		}
	}
	quotas := func() map[string]any {
		got := map[string]any{}
		for _, v := range x.do("GET", here+"quotas", nil).want(200).body["value"].([]any) {
			m := v.(map[string]any)
			got[m["type"].(string)+" "+m["id"].(string)] = m["limit"]
		}
		return got
	}
	want := map[string]any{
		dedicated + " " + x.ws + "/quotas/standardDSv2Family": 16.0, low + " " + x.ws + "/quotas/standardDSv2Family": 4.0,
		dedicated + " " + x.ws + "/quotas/standardDv2Family": 50.0,
	}
	if d := cmp.Diff(want, quotas()); d != "" {
		t.Error(d)
	}
	if got := set(x.ws+"/quotas/standardDSv2Family", low, -1); got != "Success" || len(quotas()) != 2 {
		t.Errorf("-1 removes a limit: %s, %v", got, quotas())
	}
	x.as(x.token("u", auth.User), "POST", here+"updateQuotas", `{"value":[]}`).want(403)
}

// put writes a document past the handlers.
func (x *house) put(kind, name, body string) {
	x.t.Helper()
	err := x.db.Update(x.t.Context(), func(tx *store.Tx) error {
		return tx.Insert(&store.Doc{Workspace: workspace.Key(), Kind: kind, Name: name, Body: json.RawMessage(body)})
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

func cluster(size string, more ...string) string {
	return fmt.Sprintf(`{"location":"here","properties":{"computeType":"AmlCompute","properties":{"vmSize":%q,%s"scaleSettings":{"maxNodeCount":2}}}}`, size, strings.Join(more, ""))
}

func TestSizesAreChecked(t *testing.T) {
	x := open(t)
	user := x.token("ann", auth.User)
	const low = `"vmPriority":"LowPriority",`
	x.do("PUT", "/berth/v1/sizes/Standard_D3_v2", `{"locations":["there"]}`).want(201)
	for body, says := range map[string]string{
		cluster("Standard_DS3v2"):          "did you mean Standard_DS3_v2",
		cluster("Standard_D3_v2"):          "not available in location here",
		cluster("Standard_NC6_Promo", low): "is not available with low priority",
		cluster("Standard_NC6s_v3"):        "needs an approval",
		`{"properties":{"computeType":"ComputeInstance","properties":{"vmSize":"Standard_D1_v2"}}}`: "only for AmlCompute",
	} {
		x.as(user, "PUT", x.ws+"/computes/c1", body).want(400).says(says)
	}
	x.as(user, "PUT", x.ws+"/computes/c1", cluster("Standard_NC6s_v3")).want(400).is("error.code", "QuotaExceeded").says("berth quota request --family standardNCSv3Family --vcpus 6")
	x.as(user, "PUT", x.ws+"/computes/c1", cluster("Standard_DS3_v2")).want(201)
	// An approval opens the series, for the tier it names.
	ask := x.as(user, "POST", x.ws+"/quotaRequests", `{"size":"Standard_NC6s_v3","vCPUs":12}`).want(201)
	x.do("POST", x.ws+"/quotaRequests/"+ask.at("id").(string)+"/approve", "{}").want(200)
	x.as(user, "PUT", x.ws+"/computes/c2", cluster("Standard_NC6s_v3", low)).want(400).says("needs an approval")
	x.as(user, "PUT", x.ws+"/computes/c2", cluster("Standard_NC6s_v3")).want(201)
	x.as(user, "PUT", x.ws+"/computes/c3", cluster("Standard_NC24s_v3")).want(400).says("limit of standardNCSv3Family is 12 vCPUs")
}

func TestQuotaRequests(t *testing.T) {
	x := open(t)
	ann, reader := x.token("ann", auth.User), x.token("r", auth.Reader)
	requests := x.ws + "/quotaRequests"
	x.as(reader, "POST", requests, `{"family":"standardDSv2Family","vCPUs":4}`).want(403)
	for body, says := range map[string]string{
		`{"family":"standardDSv2Family"}`:                                   "at least 1 vCPU",
		`{"family":"standardNoFamily","vCPUs":4}`:                           "there is no family",
		`{"size":"Standard_DS3v2","vCPUs":4}`:                               "did you mean",
		`{"size":"Standard_DS3_v2","family":"standardDv2Family","vCPUs":4}`: "is of family",
		`{"vCPUs":4}`: "say for what",
		`{"family":"standardDSv2Family","vCPUs":4,"expires":"2001-01-01T00:00:00Z"}`: "has passed",
		`{"family":"standardDSv2Family","vCPUs":4,"server":true}`:                    "one workspace",
		`{"family":"standardDSv2Family","vCPUs":"four"}`:                             "not the JSON",
	} {
		x.as(ann, "POST", requests, body).want(400).says(says)
	}
	x.as(ann, "POST", requests, `{"user":"bob","vCPUs":4}`).want(403).says("you are ann")

	a := x.as(ann, "POST", requests, `{"size":"standard_nc6s_v3","vCPUs":12,"reason":"thesis","user":"ann"}`).want(201)
	a.is("status", "pending").is("by", "ann").is("size", "Standard_NC6s_v3").is("family", "standardNCSv3Family").is("cost.nodes", 2.0).is("cost.perHour", 6.12).is("cost.currency", "USD")
	id := a.at("id").(string)
	x.as(ann, "POST", requests+"/"+id+"/approve", "{}").want(403).says("administrator")
	x.as(ann, "POST", requests+"/"+id+"/deny", `{"reason":"x"}`).want(403)
	x.do("POST", requests+"/"+id+"/deny", "{}").want(400).says("say why")
	x.do("POST", requests+"/q-none/approve", "{}").want(404).says("berth quota list")
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	x.do("POST", requests+"/"+id+"/approve", `{"vCPUs":6,"expires":"`+until+`"}`).want(200).is("status", "approved").is("decision.by", "root").is("decision.vCPUs", 6.0)
	x.do("POST", requests+"/"+id+"/approve", "{}").want(409).says("approved already, by root")

	b := x.as(ann, "POST", requests, `{"family":"standardDDSv4Family","vCPUs":8,"low":true}`).want(201).at("id").(string)
	x.do("POST", requests+"/"+b+"/deny", `{"reason":"use what you have"}`).want(200).is("status", "denied").is("decision.reason", "use what you have")

	x.node("n1", "standardNCSv3Family", 6, false, "ann")
	all := x.as(reader, "GET", x.ws+"/quotas", nil).want(200)
	all.is("default", -1.0).is("limits.0.user", "ann").is("limits.0.vCPUs", 6.0).is("limits.0.used", 6.0).is("limits.0.expires", until).is("limits.0.reason", "thesis")
	all.is("requests.0.id", b).is("requests.0.status", "denied").is("requests.1.status", "approved").is("requests.1.cost.nodes", 1.0)
	x.as(reader, "GET", requests+"/"+id, nil).want(200).is("status", "approved")
	if n := len(x.as(ann, "GET", requests, nil).want(200).body["value"].([]any)); n != 2 {
		t.Errorf("%d requests", n)
	}
	// The trail.
	events := string(x.as(ann, "GET", x.ws+"/events", nil).want(200).raw)
	for _, want := range []string{"quota.requested", "quota.approved", "quota.denied", berth.EventQuota, "ann asked for 12 vCPUs as user ann's limit in workspace lab of standardNCSv3Family: thesis", "root approved 6 vCPUs", "use what you have"} {
		if !strings.Contains(events, want) {
			t.Errorf("no %q in %s", want, events)
		}
	}
	x.do("DELETE", x.ws+"/quotas", nil).want(405)
	x.do("GET", x.ws+"/quotas/more", nil).want(404)
}

func TestLimits(t *testing.T) {
	x := open(t)
	ann := x.token("ann", auth.User)
	x.as(ann, "POST", x.ws+"/quotas", `{"user":"ann","vCPUs":4}`).want(403).says("berth quota request")
	x.do("POST", x.ws+"/quotas", `{"user":"ann","vCPUs":-7}`).want(400)
	x.do("POST", x.ws+"/quotas", `{"user":"ann","vCPUs":3}`).want(200)
	x.as(ann, "PUT", x.ws+"/computes/c", cluster("Standard_DS3_v2")).want(400).says("user ann's limit in workspace lab is 3 vCPUs")
	x.do("PUT", x.ws+"/computes/c", cluster("Standard_DS3_v2")).want(201)
	x.do("POST", x.ws+"/quotas", `{"user":"ann","vCPUs":-1}`).want(200)
	x.as(ann, "PUT", x.ws+"/computes/d", cluster("Standard_DS3_v2")).want(201)
	// An approval that another limit takes back says so.
	x.do("POST", x.ws+"/quotas", `{"server":true,"vCPUs":8}`).want(200)
	id := x.as(ann, "POST", x.ws+"/quotaRequests", `{"family":"standardDSv2Family","vCPUs":100}`).want(201).at("id").(string)
	a := x.do("POST", x.ws+"/quotaRequests/"+id+"/approve", "{}").want(200)
	if note, _ := a.at("note").(string); !strings.Contains(note, "the server's limit is 8 vCPUs") {
		t.Errorf("note: %q", note)
	}
}

// TestDeletedWorkspaceKeepsNoQuota: a workspace of the same name begins again.
func TestDeletedWorkspaceKeepsNoQuota(t *testing.T) {
	x := open(t)
	ws := strings.Replace(x.ws, "/lab", "/brief", 1)
	x.do("PUT", ws, "{}")
	id := x.do("POST", ws+"/quotaRequests", `{"family":"standardNCSv3Family","vCPUs":24}`).want(201).at("id").(string)
	x.do("POST", ws+"/quotaRequests/"+id+"/approve", "{}").want(200)
	x.do("GET", x.ws+"/quotaRequests/"+id, nil).want(404) // it is another workspace's
	x.do("DELETE", ws, nil).want(200)
	x.do("PUT", ws, "{}")
	a := x.do("GET", ws+"/quotas", nil).want(200)
	if n := len(a.body["limits"].([]any)) + len(a.body["requests"].([]any)); n != 0 {
		t.Errorf("%s", a.raw)
	}
	x.do("PUT", ws+"/computes/c", cluster("Standard_NC6s_v3")).want(400).says("needs an approval")
}
