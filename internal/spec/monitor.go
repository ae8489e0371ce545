package spec

import (
	"strconv"
	"strings"
)

var monitorSchedule = later(monitorScheduleParts)

func monitorScheduleParts() []part {
	return []part{
		scheduleCommon,
		f("create_monitor", monitor, to("action.monitorDefinition"), required),
		is("action.actionType", "CreateMonitor"),
		then(monitorWindows),
	}
}

// monitorWindows completes the signals: what is compared, and over which days when the file does
// not say.
func monitorWindows(s *scope, v *value) {
	if len(s.errs) > 0 {
		return
	}
	in := v.get("create_monitor")
	deployed := in.get("monitoring_target").has("endpoint_deployment_id")
	if len(in.get("monitoring_signals").entries()) == 0 && !deployed {
		s.in("create_monitor.monitoring_signals").fail(in, "is required unless monitoring_target names a deployment")
	}
	all, _ := asTree(s.out.at("action.monitorDefinition.signals"))
	days := triggerDays(v.get("trigger"))
	for _, p := range in.get("monitoring_signals").entries() {
		one, ok := asTree(all[p.key])
		if !ok {
			continue
		}
		here := s.in("create_monitor.monitoring_signals." + p.key)
		for _, key := range signals.get()[strings.ToLower(p.val.textOf("type"))].compares {
			if !p.val.has(key) && !deployed {
				here.in(key).fail(p.val, "is required unless monitoring_target names a deployment")
			}
		}
		production, ok := one["productionData"].([]any)
		if !ok {
			production = []any{one["productionData"]}
		}
		for _, d := range production {
			settleWindow(d, days, days)
		}
		settleWindow(one["referenceData"], 2*days, days)
	}
}

// settleWindow gives a window of default size and offset its days.
func settleWindow(d any, size, offset int64) {
	data, ok := asTree(d)
	if !ok {
		return
	}
	if data["windowSize"] == defaultWindow {
		data["windowSize"] = isoDays(size)
	}
	if data["windowOffset"] == defaultWindow {
		data["windowOffset"] = isoDays(offset)
	}
}

// defaultWindow is a window as long as the time between two runs; of a reference, twice as long.
const defaultWindow = "default"

// triggerDays is how many days pass between two runs of a monitor.
func triggerDays(v *value) int64 {
	n, ok := wholeOf(or(v.get("interval"), v))
	if !ok || !n.IsInt64() {
		return 7
	}
	switch strings.ToLower(v.textOf("frequency")) {
	case "minute", "hour":
		return 1
	case "day":
		return n.Int64()
	case "week":
		return 7 * n.Int64()
	case "month":
		return 30 * n.Int64()
	}
	return 7
}

func isoDays(n int64) string { return "P" + strconv.FormatInt(n, 10) + "D" }

// monitor watches the data and the answers of a deployed model.
var monitor = later(monitorParts)

func monitorParts() []part {
	return []part{
		f("compute", obj(
			is("computeType", "ServerlessSpark"),
			is("computeIdentity.computeIdentityType", "AmlToken"),
			f("instance_type", text, required),
			f("runtime_version", exactEnum("3.4", "3.5"), required),
		), to("computeConfiguration"), required),
		f("monitoring_target", obj(
			f("ml_task", enum("classification", "regression", "questionanswering"), to("taskType"), def("classification")),
			f("endpoint_deployment_id", deploymentID, to("deploymentId")),
			f("model_id", typ{name: "a model", readFunc: func(s *scope, v *value) any {
				if ref, ok := readText(s, v).(string); ok && s.checkOwn(v, "models") {
					return s.assetID("models", ref)
				}
				return nil
			}}),
		)),
		f("monitoring_signals", mapOf(signal), to("signals")),
		f("alert_notification", alertNotification, to("alertNotificationSetting")),
	}
}

// deploymentID is azureml:ENDPOINT:DEPLOYMENT, or a full id.
var deploymentID = typ{name: "a deployment", readFunc: func(s *scope, v *value) any {
	t, ok := readText(s, v).(string)
	if !ok {
		return nil
	}
	short := strings.TrimPrefix(t, "azureml:")
	if strings.HasPrefix(short, "/") {
		return short
	}
	endpoint, deployment, ok := strings.Cut(short, ":")
	if !ok || endpoint == "" || deployment == "" || strings.Contains(deployment, ":") {
		s.fail(v, "%s is not a deployment; write azureml:ENDPOINT:DEPLOYMENT", describe(v))
		return nil
	}
	return s.workspace().ResourceID("onlineEndpoints", endpoint, "deployments", deployment)
}}

var alertNotification = typ{name: "azmonitoring or a mapping", readFunc: func(s *scope, v *value) any {
	if v.shape == str {
		if enum("azmonitoring").read(s, v) == nil {
			return nil
		}
		return tree{"alertNotificationType": "AzureMonitor"}
	}
	return obj(
		is("alertNotificationType", "Email"),
		is("emailNotificationSetting.emailOn", []any{"JobFailed", "JobCompleted"}),
		f("emails", listOf(text), to("emailNotificationSetting.emails"), required),
	).read(s, v)
}}
