// Package spec turns Azure ML CLI v2 YAML into the REST documents that describe the same things,
// and REST documents back into the form `az ml … show` prints.
//
// The heart of it is a set of tables, one per YAML block, that read like the YAML reference: a line
// per field with its name, what it may hold, and where it goes in the document.
//
//	var amlCompute = obj(
//		f("size", text, to("properties.vmSize"), def("STANDARD_DS3_V2")),
//		f("tier", enum("low_priority", "dedicated"), to("properties.vmPriority")),
//		…
//
// To add a field, add a line. A rule that spans several fields is a then(…) at the end of its
// table.
//
// The way of a file: decode.go reads YAML 1.1 into values that know their line and column; set.go
// applies --set; load.go picks the table of the kind; the table checks the values and writes the
// body; what the document needs on the way (inline environments, anonymous components, uploads)
// gathers in the Result, dependencies first.
package spec
