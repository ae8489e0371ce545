package spec_test

import "errors"

func makePipe(string) error { return errors.ErrUnsupported }
