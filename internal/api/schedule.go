package api

import (
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Schedules are documents so far.

var scheduleSchema = map[string]schema{
	"properties.trigger": isObject, "properties.trigger.triggerType": isText, "properties.action": isObject, "properties.action.actionType": isText,
	"properties.isEnabled": isTruth, "properties.displayName": isText,
}

func checkSchedule(_ *call, _ *store.Tx, _, _ string, p map[string]any) error {
	for _, need := range [][2]string{{"trigger.triggerType", "Cron or Recurrence"}, {"action.actionType", "CreateJob, InvokeBatchEndpoint, CreateMonitor or ImportData"}} {
		if v, _ := dig(p, need[0]).(string); v == "" {
			return berth.Errorf(berth.Invalid, "properties.%s is missing: write %s", need[0], need[1])
		}
	}
	return nil
}

func shapeSchedule(_ *call, _ *store.Doc, p map[string]any) {
	orNull(p, "description", "displayName")
	setDefault(p, "tags", map[string]any{})
	setDefault(p, "properties", map[string]any{})
	setDefault(p, "isEnabled", true)
	p["provisioningState"] = "Succeeded"
}

// wantedSchedule leaves out those that are disabled, unless they are asked for.
func wantedSchedule(c *call, d *store.Doc) bool {
	_, p, err := bodyOf(d)
	if err != nil {
		return false
	}
	off := p["isEnabled"] == false
	switch strings.ToLower(c.q.Get("listViewType")) {
	case "all":
		return true
	case "disabledonly":
		return off
	}
	return !off
}
