package berth

// Size is one VM size as scheduling and pricing see it.
type Size struct {
	Name        string   `json:"name"` // Standard_DS3_v2
	Family      string   `json:"family"`
	Series      string   `json:"series"`
	VCPUs       int      `json:"vCPUs"`
	MemoryGB    float64  `json:"memoryGB"`
	GPUs        int      `json:"gpus"`
	GPU         string   `json:"gpu,omitempty"` // model
	RDMA        bool     `json:"rdma,omitempty"`
	PremiumIO   bool     `json:"premiumIO,omitempty"`
	OSDiskMB    int      `json:"osDiskMB,omitempty"`
	TempDiskMB  int      `json:"tempDiskMB,omitempty"`
	LowPriority bool     `json:"lowPriorityCapable"`
	Category    string   `json:"category"`             // General purpose, Compute optimized, …
	Restricted  bool     `json:"restricted,omitempty"` // needs an approval
	Isolated    bool     `json:"isolated,omitempty"`
	Computes    []string `json:"supportedComputeTypes"`
	Price       *float64 `json:"price,omitempty"`    // per hour, dedicated; nil is unknown
	LowPrice    *float64 `json:"lowPrice,omitempty"` // per hour, low priority; nil is unknown
	Currency    string   `json:"currency,omitempty"`
	Absent      []string `json:"absent,omitempty"`    // locations that do not have it
	Locations   []string `json:"locations,omitempty"` // the only locations that have it; empty is all
	Own         bool     `json:"own,omitempty"`       // added by an administrator
}

// Memory is MemoryGB in bytes.
func (s Size) Memory() int64 { return int64(s.MemoryGB * (1 << 30)) }
