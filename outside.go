package berth

// Outside is a place in storage that is not the server's: a folder, or a file, of a datastore. A
// runner speaks to that storage itself, with requests that the server signs for it one by one; the
// datastore's credentials stay with the server.
type Outside struct {
	Protocol  string `json:"protocol"`  // StorageAzure or StorageS3
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
	StorageAzure = "azure" // Azure's Blob service
	StorageS3    = "s3"    // S3, and what others made alike
)

// StorageRequest is a request to storage elsewhere that a runner wants to send.
type StorageRequest struct {
	Do     StorageVerb `json:"do"`
	Name   string      `json:"name,omitempty"`   // of a file below the place; empty is the place itself
	Marker string      `json:"marker,omitempty"` // of a list: where it goes on
	Upload string      `json:"upload,omitempty"` // of an upload in parts
	Part   int         `json:"part,omitempty"`
}

// StorageVerb is what a request does.
type StorageVerb string

// A file is written by StoragePut; a large one in S3 is begun, sent in parts, and finished or
// dropped. In Azure what StoragePut signed opens the blocks of a file too.
const (
	StorageList   StorageVerb = "list" // everything below the place
	StorageHead   StorageVerb = "head"
	StorageGet    StorageVerb = "get"
	StoragePut    StorageVerb = "put"
	StorageBegin  StorageVerb = "begin"
	StoragePart   StorageVerb = "part"
	StorageFinish StorageVerb = "finish"
	StorageDrop   StorageVerb = "drop"
)

// Writes says whether the request changes something.
func (v StorageVerb) Writes() bool { return v != StorageList && v != StorageHead && v != StorageGet }

// MaxStorageRequests is how many requests are signed at once.
const MaxStorageRequests = 200
