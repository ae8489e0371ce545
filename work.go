package berth

// Work is how far a job has come whose input is cut into mini-batches.
type Work struct {
	Batches int `json:"batches"` // how many there are; 0 until the input is cut
	// Planner is the task that cuts the input, and Planned how many mini-batches it has named so
	// far.
	Planner TaskID `json:"planner,omitempty"`
	Planned int    `json:"planned,omitempty"`
	Waiting int    `json:"waiting"`
	Running int    `json:"running"`
	Done    int    `json:"done"`
	Failed  int    `json:"failed"`
	// Items are what the mini-batches consist of, files as a rule. DoneItems were in mini-batches
	// that have ended, and FailedItems of these have no result.
	Items       int `json:"items"`
	DoneItems   int `json:"doneItems"`
	FailedItems int `json:"failedItems"`
	// Short is how many of those done have returned less than they were given.
	Short int `json:"short,omitempty"`
	// Writer is the task that writes the result once every mini-batch has ended.
	Writer TaskID `json:"writer,omitempty"`
	// Error is why the job fails although tasks could go on, and LastError what was wrong with the
	// last mini-batch that failed.
	Error     string `json:"error,omitempty"`
	LastError string `json:"lastError,omitempty"`
	// Settled are the tasks that have ended and whose mini-batches were given back; Lost is how
	// many of them were lost with their nodes.
	Settled []TaskID `json:"settled,omitempty"`
	Lost    int      `json:"lost,omitempty"`
}

// Ended says whether every mini-batch has.
func (w *Work) Ended() bool { return w.Batches > 0 && w.Waiting+w.Running == 0 }

// BatchState is the state of a mini-batch.
type BatchState int

// The states of a mini-batch.
const (
	BatchWaiting BatchState = iota
	BatchRunning            // a task has it
	BatchDone
	BatchFailed // it was tried as often as it may be
)

// MiniBatch is a part of the input of a job that is worked on as one.
type MiniBatch struct {
	Number int
	State  BatchState
	Owner  TaskID // the task that has it, or that had it last
	Tries  int    // how often it has failed
	Failed int    // items without a result
	Start  int64  // where its rows begin in the file of results
	Size   int64  // bytes of its rows
	// Loose says that it wrote files, which are on the node of its task until that has ended.
	Loose bool
	Items []string
	Rows  int // of a table, 0 where the items are files
	Error string
}

// Count is how many items the mini-batch has: files, or rows of a table.
func (b *MiniBatch) Count() int {
	if b.Rows > 0 {
		return b.Rows
	}
	return len(b.Items)
}
