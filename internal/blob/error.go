package blob

import (
	"errors"
	"fmt"
	"strconv"
	"syscall"

	"github.com/berthml/berth"
)

func notFound(container, name string) error {
	return &berth.Error{
		Code: berth.NotFound, Wire: "BlobNotFound",
		Msg: fmt.Sprintf("blob %s does not exist in container %s", quote(name), quote(container)),
	}
}

func exists(container, name string) error {
	return &berth.Error{
		Code: berth.Conflict, Wire: "BlobAlreadyExists",
		Msg: fmt.Sprintf("blob %s exists in container %s already", quote(name), quote(container)),
	}
}

func notMatched(container, name string) error {
	return &berth.Error{
		Code: berth.Precondition, Wire: "ConditionNotMet",
		Msg: fmt.Sprintf("blob %s in container %s is not the requested version", quote(name), quote(container)),
	}
}

// diskError codes an error of the file system: a full disk is worth another try once there is room.
func (s *Store) diskError(doing string, err error) error {
	var coded *berth.Error
	switch {
	case err == nil || errors.As(err, &coded):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &berth.Error{
			Code: berth.Unavailable, Wire: "InsufficientStorage", Err: err,
			Msg: fmt.Sprintf("the disk that holds %s is full: free some space and try again", s.dir),
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// quote shows hostile text safely, and not at length.
func quote(s string) string {
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return strconv.Quote(s)
}
