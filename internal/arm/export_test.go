package arm

// Functions are the names of all functions, for the test of the documentation.
func Functions() []string { return keys(builtins()) }
