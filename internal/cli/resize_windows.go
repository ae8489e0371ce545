package cli

// watchSize does nothing: Windows sends no signal for it.
func watchSize(func()) (stop func()) { return func() {} }
