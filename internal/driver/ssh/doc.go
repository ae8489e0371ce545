// Package ssh is the driver for a machine that the server reaches over SSH. Nothing has to be
// installed there, and no root is needed: an account and a shell are enough.
//
// The server keeps one SSH connection to each machine. The first time it copies its own program
// there, named by its hash, and from then on runs it as a bridge: a process whose standard input
// and output lead to an agent, which the bridge starts unless there is one. What goes over that is
// package dialout's protocol, and tasks run as dialout's do. They reach the server through the same
// connection, at a port of the agent's that is open to the machine itself only, so neither side
// needs another way to the other.
//
//	server ── SSH ── sshd ── bridge ── agent ── runner host ── tasks
//	   ▲                                 ▲                       │
//	   └───────── relay ─────────────────┴── 127.0.0.1:PORT ◀────┘ reports, logs, code, data
//
// The agent and the runner host outlive the connection: when it is cut tasks go on, and what they
// could not report waits. An agent that nobody has connected to for a while and that has no tasks
// ends by itself.
package ssh
