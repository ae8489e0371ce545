package slurm

import "strings"

// reasons translates why Slurm has a job wait. Others are shown as they are.
var reasons = map[string]string{
	"":                            "Slurm has not looked at it yet",
	"None":                        "Slurm has not looked at it yet",
	"Priority":                    "jobs of higher priority are before it in Slurm's queue",
	"Resources":                   "no node of Slurm has what it asks for free",
	"BeginTime":                   "Slurm starts it at a later time",
	"Dependency":                  "it depends on another job of Slurm",
	"JobArrayTaskLimit":           "the first jobs of its array go first",
	"JobHeldUser":                 "it is held; `scontrol release` lets it go",
	"JobHeldAdmin":                "an administrator of Slurm holds it",
	"Licenses":                    "a license that it asks for is not free",
	"NodeDown":                    "a node that it needs is down",
	"ReqNodeNotAvail":             "a node that it asks for is down, drained or reserved",
	"PartitionDown":               "its partition is down",
	"PartitionInactive":           "its partition takes no jobs now",
	"PartitionNodeLimit":          "it asks for more nodes than its partition gives to one job",
	"PartitionTimeLimit":          "its time limit is longer than its partition's",
	"PartitionConfig":             "it asks for what its partition does not have",
	"Reservation":                 "its reservation has not begun",
	"AssocGrpCpuLimit":            "its account has used up the CPUs it may have at once",
	"AssocGrpGRES":                "its account has used up the GPUs it may have at once",
	"AssocGrpMemLimit":            "its account has used up the memory it may have at once",
	"AssocGrpNodeLimit":           "its account has used up the nodes it may have at once",
	"AssocGrpJobsLimit":           "its account has as many jobs running as it may",
	"AssocMaxJobsLimit":           "the user has as many jobs running as they may",
	"AssocGrpCPUMinutesLimit":     "its account has used up its CPU time",
	"AssocGrpBillingMinutes":      "its account has used up its budget in Slurm",
	"QOSGrpCpuLimit":              "its quality of service has used up the CPUs it may have at once",
	"QOSGrpGRES":                  "its quality of service has used up the GPUs it may have at once",
	"QOSGrpMemLimit":              "its quality of service has used up the memory it may have at once",
	"QOSGrpNodeLimit":             "its quality of service has used up the nodes it may have at once",
	"QOSMaxCpuPerJobLimit":        "it asks for more CPUs than its quality of service gives to one job",
	"QOSMaxCpuPerUserLimit":       "the user has as many CPUs as the quality of service gives to one user",
	"QOSMaxGRESPerUser":           "the user has as many GPUs as the quality of service gives to one user",
	"QOSMaxJobsPerUserLimit":      "the user has as many jobs running as the quality of service lets one user have",
	"QOSMaxMemoryPerUser":         "the user has as much memory as the quality of service gives to one user",
	"QOSMaxNodePerUserLimit":      "the user has as many nodes as the quality of service gives to one user",
	"QOSJobLimit":                 "its quality of service has as many jobs running as it may",
	"QOSResourceLimit":            "its quality of service has used up what it may have at once",
	"InvalidAccount":              "its account is not valid in Slurm",
	"InvalidQOS":                  "its quality of service is not valid in Slurm",
	"BadConstraints":              "no node of Slurm can ever meet what it asks for",
	"launch failed requeued held": "Slurm could not start it and holds it",
}

// reason is why a job waits, as one sentence with Slurm's own word.
func reason(word string) string {
	short, _, _ := strings.Cut(word, ",") // names of nodes may follow
	if text, ok := reasons[short]; ok && word != "" && word != "None" {
		return text + " (" + word + ")"
	} else if ok {
		return text
	}
	return "Slurm has it wait: " + word
}
