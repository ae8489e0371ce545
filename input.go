package berth

import (
	"encoding/binary"
	"io"
)

// InputProtocol is the protocol of connections that carry what a user types to a command. The user
// sends frames; the server sends InputReady once the command's runner takes them, and ends the
// connection when the command has ended.
const (
	InputProtocol = "berth-input"
	InputReady    = 0x06
)

// InputKind says what a frame of input is.
type InputKind byte

// The kinds of frames.
const (
	InputData   InputKind = 'd' // bytes for standard input
	InputResize InputKind = 'r' // the terminal has another size
	InputEnd    InputKind = 'e' // standard input has ended
)

// InputFrame is one piece of input.
type InputFrame struct {
	Kind          InputKind
	Data          []byte
	Rows, Columns int
}

// WriteTo writes the frame. Data must be shorter than 64 KiB.
func (f InputFrame) WriteTo(w io.Writer) (int64, error) {
	data := f.Data
	if f.Kind == InputResize {
		data = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, uint16(f.Rows)), uint16(f.Columns))
	}
	b := binary.BigEndian.AppendUint16([]byte{byte(f.Kind)}, uint16(len(data)))
	n, err := w.Write(append(b, data...))
	return int64(n), err
}

// ReadInput reads a frame. The error is io.EOF where the input ends between two of them.
func ReadInput(r io.Reader) (InputFrame, error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return InputFrame{}, err
	}
	f := InputFrame{Kind: InputKind(head[0]), Data: make([]byte, binary.BigEndian.Uint16(head[1:]))}
	if _, err := io.ReadFull(r, f.Data); err != nil {
		return InputFrame{}, io.ErrUnexpectedEOF
	}
	switch {
	case f.Kind == InputResize && len(f.Data) == 4:
		f.Rows, f.Columns = int(binary.BigEndian.Uint16(f.Data)), int(binary.BigEndian.Uint16(f.Data[2:]))
	case f.Kind != InputData && f.Kind != InputEnd:
		return InputFrame{}, Errorf(Invalid, "a frame of kind %q is not input", f.Kind)
	}
	return f, nil
}
