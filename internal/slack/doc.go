// Package slack lets the kernel wake the threads of a server a little late.
//
// A Go program that makes calls which block has a thread that looks after them every 20
// microseconds, and a kernel that wakes it as exactly as that. At a thousand short jobs a second a
// seventh of all the processor time of Berth went there. A thread may tell the kernel how late it
// may be woken: with a millisecond that thread looks a tenth as often, and nothing in a server
// waits for a timer that short.
package slack
