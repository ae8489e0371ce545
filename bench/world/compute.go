package world

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/berthml/berth"
)

// Cluster is the document of a cluster. An idle time of 0 gives nodes back as soon as they have
// nothing to do.
func Cluster(size string, least, most int, idle time.Duration) []byte {
	return fmt.Appendf(nil, `{"location":"local","properties":{"computeType":"AmlCompute","properties":{"vmSize":%q,"scaleSettings":{`+
		`"minNodeCount":%d,"maxNodeCount":%d,"nodeIdleTimeBeforeScaleDown":"PT%dS"}}}}`, size, least, most, int(idle.Seconds()))
}

// JobOn is the document of a command job on a compute.
func JobOn(compute, command string) []byte {
	return []byte(`{"properties":{"jobType":"Command","command":` + strconv.Quote(command) + `,"computeId":"azureml:` + compute + `"}}`)
}

// Put writes a resource.
func (c *Conn) Put(path string, doc []byte) error {
	_, err := c.do(http.MethodPut, path, doc)
	return err
}

// Times is where the time of a job went.
func (c *Conn) Times(ws, job string) (berth.Waterfall, error) {
	b, err := c.Get(ws + "/jobs/" + job)
	if err != nil {
		return berth.Waterfall{}, err
	}
	var v struct {
		Properties struct{ Berth berth.JobState }
	}
	err = json.Unmarshal(b, &v)
	return v.Properties.Berth.Times, err
}
