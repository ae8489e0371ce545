package spec

import "strconv"

var computeInstance = computeOf("computeinstance", "ComputeInstance", func() []part {
	return []part{
		readonly("state", "last_operation", "services", "os_image_metadata"),
		f("resource_id", text, unsent),
		f("size", text, to("properties.vmSize"), def("STANDARD_DS3_V2")),
		f("ssh_public_access_enabled", onOff("Enabled", "Disabled"), to("properties.sshSettings.sshPublicAccess")),
		f("ssh_settings", obj(
			readonly("admin_username", "ssh_port"),
			f("ssh_key_value", text, to("adminPublicKey")),
		), unsent),
		f("create_on_behalf_of", obj(
			f("user_object_id", text, to("objectId")),
			f("user_tenant_id", text, to("tenantId")),
		), to("properties.personalComputeInstanceSettings.assignedUser")),
		f("network_settings", networkSettings, unsent),
		f("idle_time_before_shutdown", text, to("properties.idleTimeBeforeShutdown")),
		f("idle_time_before_shutdown_minutes", plainMinutes, to("properties.idleTimeBeforeShutdown")),
		f("enable_node_public_ip", flag, to("properties.enableNodePublicIp"), def(true)),
		f("enable_sso", flag, to("properties.enableSSO"), def(true)),
		f("enable_root_access", flag, to("properties.enableRootAccess"), def(true)),
		f("release_quota_on_stop", flag, to("properties.releaseQuotaOnStop"), def(false)),
		f("enable_os_patching", flag, to("properties.enableOSPatching"), def(false)),
		f("identity", resourceIdentity, to("/identity")),
		f("schedules", obj(f("compute_start_stop", listOf(startStop))), to("properties.schedules")),
		f("setup_scripts", obj(
			f("creation_script", setupScript, to("scripts.creationScript")),
			f("startup_script", setupScript, to("scripts.startupScript")),
		), to("properties.setupScripts")),
		f("custom_applications", listOf(customApplication), to("properties.customServices")),
		then(func(s *scope, v *value) {
			s.out.put("properties.applicationSharingPolicy", "Shared")
			s.out.put("properties.computeInstanceAuthorizationType", "personal")
			if key := v.get("ssh_settings").textOf("ssh_key_value"); key != "" {
				s.out.put("properties.sshSettings.adminPublicKey", key)
			}
			if v.has("ssh_settings") && s.out.text("properties.sshSettings.sshPublicAccess") == "" {
				s.out.put("properties.sshSettings.sshPublicAccess", "Disabled")
			}
			s.out["disableLocalAuth"] = s.out.text("properties.sshSettings.sshPublicAccess") != "Enabled"
			s.subnet(v)
			s.ports(v)
		}),
	}
})

// ports checks that the applications' ports are in range and no two publish the same.
func (s *scope) ports(v *value) {
	apps := v.get("custom_applications")
	if apps == nil {
		return
	}
	seen := map[int64]bool{}
	for i, app := range apps.items {
		ends := app.get("endpoints")
		if ends == nil {
			continue
		}
		for j, e := range ends.items {
			for _, key := range []string{"target", "published"} {
				at := e.get(key)
				if at == nil {
					continue
				}
				n, ok := wholeOf(at)
				here := s.in("custom_applications[" + strconv.Itoa(i) + "].endpoints[" + strconv.Itoa(j) + "]." + key)
				if !ok || !n.IsInt64() {
					continue
				}
				p := n.Int64()
				if p < 1025 || p > 65535 {
					here.fail(at, "port %d is out of range; use 1025 to 65535", p)
				} else if key == "published" && seen[p] {
					here.fail(at, "port %d is published twice", p)
				}
				if key == "published" {
					seen[p] = true
				}
			}
		}
	}
}

// plainMinutes travel as PT90M, not normalised.
var plainMinutes = suffixed("a whole number of minutes", "PT", "M")

// shortMinutes travel as 20m.
var shortMinutes = suffixed("a whole number of minutes", "", "m")

func suffixed(name, before, after string) typ {
	return typ{name: name, readFunc: func(s *scope, v *value) any {
		n, ok := wholeOf(v)
		if !ok {
			s.fail(v, "must be %s, not %s", name, describe(v))
			return nil
		}
		return before + n.String() + after
	}, showFunc: func(j any) any {
		t, ok := j.(string)
		if !ok || len(t) < len(before)+len(after) {
			return j
		}
		if n, err := strconv.Atoi(t[len(before) : len(t)-len(after)]); err == nil {
			return number(strconv.Itoa(n))
		}
		if ms, ok := parseISO(t); ok {
			return number(strconv.FormatInt(ms/60_000, 10))
		}
		return j
	}}
}

var startStopTrigger = byKey("type", func() map[string]typ {
	return map[string]typ{
		"cron": obj(
			is("triggerType", "Cron"),
			f("type", text, unsent),
			f("expression", text, required),
			f("start_time", text),
			f("time_zone", text, def("UTC")),
		),
		"recurrence": obj(
			is("triggerType", "Recurrence"),
			f("type", text, unsent),
			f("frequency", frequency, required),
			f("interval", whole, required),
			f("schedule", obj(
				f("hours", listOf(whole), def([]any{})),
				f("minutes", listOf(whole), def([]any{})),
				f("week_days", listOf(weekDay)),
			)),
			f("start_time", text),
			f("time_zone", text, def("UTC")),
		),
	}
})

var startStop = later(startStopParts)

func startStopParts() []part {
	return []part{
		readonly("schedule_id", "provisioning_state"),
		f("action", enum("start", "stop"), required),
		f("state", enum("enabled", "disabled"), to("status"), def("Enabled")),
		f("trigger", startStopTrigger),
		then(func(s *scope, v *value) {
			trigger, ok := asTree(s.out["trigger"])
			if !ok {
				return
			}
			delete(s.out, "trigger")
			s.out["triggerType"] = trigger["triggerType"]
			s.out[snake(trigger.text("triggerType"))] = trigger
		}),
		backwards(func(in, out tree) {
			if trigger, ok := asTree(in[snake(in.text("triggerType"))]); ok {
				out["trigger"] = startStopTrigger.show(trigger)
			}
		}),
	}
}

var (
	frequency = enum("minute", "hour", "day", "week", "month")
	weekDay   = enum("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
)

var setupScript = later(setupScriptParts)

func setupScriptParts() []part {
	return []part{
		is("scriptSource", "workspaceStorage"),
		f("path", text, to("scriptData")),
		f("command", text, to("scriptArguments")),
		f("timeout_minutes", shortMinutes, to("timeout")),
	}
}

var customApplication = later(customApplicationParts)

func customApplicationParts() []part {
	return []part{
		f("name", text, required),
		f("type", enum("docker"), def("docker")),
		f("image", obj(is("type", "docker"), f("reference", text)), required),
		f("endpoints", listOf(obj(
			is("protocol", "http"),
			is("name", "connect"),
			f("target", whole),
			f("published", whole),
		)), required),
		f("environment_variables", mapOf(typ{name: "a string", readFunc: func(_ *scope, v *value) any {
			return tree{"type": "local", "value": v.raw()}
		}, showFunc: func(j any) any {
			if m, ok := asTree(j); ok {
				return m["value"]
			}
			return j
		}})),
		f("bind_mounts", listOf(obj(
			is("type", "bind"),
			is("readOnly", false),
			f("source", text),
			f("target", text),
		)), to("volumes")),
		is("docker.privileged", true),
	}
}
