package berth

// Cases of work that advice can be had for.
const (
	CaseExperiment = "experiment" // notebooks, trying things out
	CaseProduction = "production" // training by script, again and again
	CaseMany       = "many"       // many models at once: sweeps, automated ML
	CaseBatch      = "batch"      // scoring of data that lies there
	CaseRealtime   = "realtime"   // answering requests
)

// Cases are all cases, in the order of a model's life.
var Cases = []string{CaseExperiment, CaseProduction, CaseMany, CaseBatch, CaseRealtime}

// Advice says where to run something, and on what size.
type Advice struct {
	// Needs is what the sizes were chosen for.
	Needs AdviceNeeds `json:"needs"`
	// Targets are the recommendations, the best of each case first.
	Targets []TargetAdvice `json:"targets"`
	// Measured compares what earlier runs used with what they had.
	Measured []MeasuredAdvice `json:"measured"`
}

// AdviceNeeds describes the work.
type AdviceNeeds struct {
	Case    string  `json:"case,omitempty"` // empty is any
	DataGB  float64 `json:"dataGB,omitempty"`
	ModelGB float64 `json:"modelGB,omitempty"`
	RAMGB   float64 `json:"ramGB,omitempty"` // that the work needs
	GPU     bool    `json:"gpu,omitempty"`
	// Memory is how much memory a machine should have, and Why the reason.
	MemoryGB float64 `json:"memoryGB,omitempty"`
	Why      string  `json:"why,omitempty"`
}

// TargetAdvice is one recommendation.
type TargetAdvice struct {
	Case   string `json:"case"`
	Target string `json:"target"` // local, instance, cluster, container instances, kubernetes
	Best   bool   `json:"best"`   // the first choice of its case
	Rule   string `json:"rule"`   // why
	// Here reports whether this server supports such targets.
	Here  bool        `json:"here"`
	Tier  string      `json:"tier,omitempty"` // dedicated, low_priority
	Sizes []SizeOffer `json:"sizes"`          // the cheapest that will do first
	Notes []string    `json:"notes"`          // more rules that bear on it
	Do    []string    `json:"do"`             // commands
}

// SizeOffer is a recommended size with the reason.
type SizeOffer struct {
	Name       string   `json:"name"`
	VCPUs      int      `json:"vCPUs"`
	MemoryGB   float64  `json:"memoryGB"`
	GPUs       int      `json:"gpus"`
	GPU        string   `json:"gpu,omitempty"`
	Price      *float64 `json:"price,omitempty"` // per hour; absent when it is not known
	LowPrice   *float64 `json:"lowPrice,omitempty"`
	Currency   string   `json:"currency,omitempty"`
	Restricted bool     `json:"restricted,omitempty"` // needs an approval
	Why        string   `json:"why"`
}

// MeasuredAdvice compares what a job used with what it had.
type MeasuredAdvice struct {
	Job     string  `json:"job"`
	Compute string  `json:"compute"`
	Size    string  `json:"size"`
	AskedGB float64 `json:"askedGB"` // memory of a node
	PeakGB  float64 `json:"peakGB"`  // used on a node at most; 0 when it was not measured
	VCPUs   int     `json:"vCPUs"`
	// PeakCPUs is the largest number of CPUs that were busy at once.
	PeakCPUs float64    `json:"peakCPUs"`
	Verdict  string     `json:"verdict"` // fits, too large, too small, unknown
	Advice   string     `json:"advice"`
	Better   *SizeOffer `json:"better,omitempty"`
	Saves    *float64   `json:"saves,omitempty"` // an hour of a node; below 0 when the better size costs more
}
