package berth

// Outside is a place in storage that is not the server's: a folder, or a file, of a datastore. A
// runner speaks to that storage itself, with requests that the server signs for it one by one. The
// datastore's key stays with the server; where its credentials are a signature that somebody else
// made (sas_token), the runner gets that. Where an address cannot carry a signature, requests go
// through the server.
type Outside struct {
	Protocol  string `json:"protocol"`  // OutsideAzure, OutsideShare, OutsideS3 or OutsideHTTP
	Datastore string `json:"datastore"` // for people
	At        string `json:"at"`        // the place, for people: s3://BUCKET/PATH
	// Scope tells the place, as this datastore opens it, from every other one. What is kept of it
	// on a node is kept under this name.
	Scope string `json:"scope"`
	// Grant is what the server wants to see before it signs anything.
	Grant string `json:"grant"`
}

// The protocols that storage elsewhere speaks.
const (
	OutsideAzure = "azure" // Azure's Blob service
	OutsideShare = "share" // Azure's file shares
	OutsideS3    = "s3"    // S3, and what others made alike
	OutsideHTTP  = "http"  // web servers: WebDAV, or pages that list what is in a folder
)

// OutsideRequest is a request to storage elsewhere that a runner wants to send.
type OutsideRequest struct {
	Do     OutsideVerb `json:"do"`
	Name   string      `json:"name,omitempty"`   // of a file below the place; empty is the place itself
	Marker string      `json:"marker,omitempty"` // of a list: where it goes on
	Upload string      `json:"upload,omitempty"` // of an upload in parts
	// Part is the number of a part of an upload or, of a folder that is made, how many names at the
	// end of the path are left out: 1 is the folder that a file is in.
	Part int `json:"part,omitempty"`
}

// OutsideVerb is what a request does.
type OutsideVerb string

// A file is written by OutsidePut; a large one in S3 is begun, sent in parts, and finished or
// dropped. In Azure what OutsidePut signed opens the blocks of a file too. Shares and web servers
// have folders, which are listed one by one and made before what is in them.
const (
	OutsideList   OutsideVerb = "list" // everything below the place, or one folder
	OutsideHead   OutsideVerb = "head"
	OutsideGet    OutsideVerb = "get"
	OutsidePut    OutsideVerb = "put"
	OutsideBegin  OutsideVerb = "begin"
	OutsidePart   OutsideVerb = "part"
	OutsideFinish OutsideVerb = "finish"
	OutsideDrop   OutsideVerb = "drop"
	OutsideMkdir  OutsideVerb = "mkdir"
	OutsideDelete OutsideVerb = "delete"
)

// Writes says whether the request changes something.
func (v OutsideVerb) Writes() bool { return v != OutsideList && v != OutsideHead && v != OutsideGet }

// MaxOutsideRequests is how many requests are signed at once.
const MaxOutsideRequests = 200
