package berth

// Turn is the question of a runner that takes several tasks of an array, one after the other: which
// is its next one. Runners and tasks of an array are counted from 0, and each runner was started
// for the task of its own number.
type Turn struct {
	Array  string `json:"array"`
	Runner int    `json:"runner"`
	// Ended is the task that it had, which has ended well and was reported; nil before its first.
	Ended *int `json:"ended,omitempty"`
}

// TurnAnswer is the answer: the task to run, or NoTurn.
type TurnAnswer struct {
	Task int `json:"task"`
}

// NoTurn tells a runner to end.
const NoTurn = -1
