package berth

// TagImportedFrom is the tag of a run, a logged model or a registered model that was imported from
// another MLflow server: which one.
const TagImportedFrom = "berth.imported_from"
