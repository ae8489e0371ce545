// Package berth is the vocabulary of the compute plane: the nouns every other package speaks in.
//
// It holds types, identifiers and validation, performs no I/O and imports the standard library
// only. The wire form of every resource is Azure Machine Learning's; the types here are typed views
// of those documents, never their storage.
package berth

// Version is the release this build belongs to; the linker overrides it.
var Version = "0.1.0-dev"

// TokenIsShell is the warning for everybody who lets others use a server.
const TokenIsShell = "every user's token gives a shell on this machine under the server's account"
