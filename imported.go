package berth

const (
	// TagImportedFrom is the tag of a run, a logged model or a registered model that was imported
	// from another MLflow server: which one.
	TagImportedFrom = "berth.imported_from"
	// TagImportedID is the tag of a run that has another id than where it was imported from: the id
	// there, which is the name of a job.
	TagImportedID = "berth.imported_id"
	// TagImportDone is the tag of a run or logged model that was imported whole: a mark of how it
	// was. One that has not changed since is not read again.
	TagImportDone = "berth.import_done"
)
