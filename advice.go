package berth

// Cases of work that advice can be had for.
const (
	CaseExperiment = "experiment" // notebooks, trying things out
	CaseProduction = "production" // training by script, again and again
	CaseMany       = "many"       // many models at once: sweeps, automated ML
	CaseBatch      = "batch"      // scoring of data that lies there
	CaseRealtime   = "realtime"   // answering requests
)

// Cases is all of them, in the order of a model's life.
var Cases = []string{CaseExperiment, CaseProduction, CaseMany, CaseBatch, CaseRealtime}

// Advice is where to run something, and on what.
type Advice struct {
	// Needs is what the sizes were chosen by.
	Needs AdviceNeeds `json:"needs"`
	// Targets are the recommendations, the best of each case first.
	Targets []TargetAdvice `json:"targets"`
	// Measured is what runs used of what they had.
	Measured []MeasuredAdvice `json:"measured"`
}

// AdviceNeeds is what is known of the work.
type AdviceNeeds struct {
	Case    string  `json:"case,omitempty"` // empty is any
	DataGB  float64 `json:"dataGB,omitempty"`
	ModelGB float64 `json:"modelGB,omitempty"`
	RAMGB   float64 `json:"ramGB,omitempty"` // that the work needs
	GPU     bool    `json:"gpu,omitempty"`
	// Memory is what a machine should have, and Why where that comes from.
	MemoryGB float64 `json:"memoryGB,omitempty"`
	Why      string  `json:"why,omitempty"`
}

// TargetAdvice is one recommendation.
type TargetAdvice struct {
	Case   string `json:"case"`
	Target string `json:"target"` // local, instance, cluster, container instances, kubernetes
	Best   bool   `json:"best"`   // the first choice of its case
	Rule   string `json:"rule"`   // why
	// Here says whether this server has such targets.
	Here  bool        `json:"here"`
	Tier  string      `json:"tier,omitempty"` // dedicated, low_priority
	Sizes []SizeOffer `json:"sizes"`          // the cheapest that will do first
	Notes []string    `json:"notes"`          // more rules that bear on it
	Do    []string    `json:"do"`             // commands
}

// SizeOffer is a size with why it is offered.
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

// MeasuredAdvice is what a job used of what it had.
type MeasuredAdvice struct {
	Job     string  `json:"job"`
	Compute string  `json:"compute"`
	Size    string  `json:"size"`
	AskedGB float64 `json:"askedGB"` // memory of a node
	PeakGB  float64 `json:"peakGB"`  // used on a node at most; 0 when it was not measured
	VCPUs   int     `json:"vCPUs"`
	// PeakCPUs is how many CPUs were busy at most.
	PeakCPUs float64    `json:"peakCPUs"`
	Verdict  string     `json:"verdict"` // fits, too large, too small, unknown
	Advice   string     `json:"advice"`
	Better   *SizeOffer `json:"better,omitempty"`
	Saves    *float64   `json:"saves,omitempty"` // an hour of a node; below 0 when the better size costs more
}
