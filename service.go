package berth

import (
	"encoding/json"
	"net/url"
	"strings"
)

// The types of services that a job can offer while it runs, as Azure names them.
const (
	ServiceSSH         = "SSH"
	ServiceJupyterLab  = "JupyterLab"
	ServiceTensorBoard = "TensorBoard"
	ServiceVSCode      = "VSCode"
)

// ServiceTypes are the types of services.
var ServiceTypes = []string{ServiceSSH, ServiceJupyterLab, ServiceTensorBoard, ServiceVSCode}

// JobService is a service that a job asks for.
type JobService struct {
	Type       string            `json:"jobServiceType"` // one of ServiceTypes, or one that every job has
	Port       int               `json:"port"`           // 0: any that is free
	Nodes      json.RawMessage   `json:"nodes"`          // Azure's {"nodesValueType": "All"}, or nothing
	Properties map[string]Scalar `json:"properties"`
}

// Kind is the type of the service in the spelling of ServiceTypes, empty where it is none of them.
func (s JobService) Kind() string {
	for _, t := range ServiceTypes {
		if strings.EqualFold(t, s.Type) {
			return t
		}
	}
	return ""
}

// Own reports whether it is a service that every job has: Azure's clients send those back.
func (s JobService) Own() bool {
	return strings.EqualFold(s.Type, "Studio") || strings.EqualFold(s.Type, "Tracking")
}

// LaunchService is a service that a runner starts beside the command.
type LaunchService struct {
	Type   string `json:"type"`
	Base   string `json:"base"`             // path at which the server shows it, without a slash at the end
	Secret string `json:"secret"`           // what it asks of everybody who calls it
	Port   int    `json:"port,omitempty"`   // 0: any that is free
	LogDir string `json:"logDir,omitempty"` // that TensorBoard shows; empty is the working directory
}

// The states of a service of a job.
const (
	ServiceStarting = "Starting"
	ServiceRunning  = "Running"
	ServiceFailed   = "Failed"
	ServiceStopped  = "Stopped"
)

// ServiceState is the state of a service of a job.
type ServiceState struct {
	Status string `json:"status"`
	Port   int    `json:"port,omitempty"`
	Error  string `json:"error,omitempty"` // why it failed: one sentence
}

// ServiceRoot is where the services of jobs are on a server.
const ServiceRoot = "/berth/services/"

// ServicePath is where a service of a job is, without a slash at the end; of all of them if name is
// empty.
func ServicePath(ws Workspace, job, name string) string {
	parts := []string{ws.Subscription, ws.Group, ws.Name, job}
	if name != "" {
		parts = append(parts, name)
	}
	for i, p := range parts {
		if i < 3 { // compared without case everywhere
			p = strings.ToLower(p)
		}
		parts[i] = url.PathEscape(p)
	}
	return ServiceRoot + strings.Join(parts, "/")
}
