// Package dialout is the driver for a machine that connects to the server by itself. Nothing on
// that machine listens, and it shares no disk with the server: it may be behind NAT, asleep for a
// while, or in another network.
//
// A program on the machine, the agent ([Agent]), opens one HTTPS connection to the server and asks
// to upgrade it. From then on the roles are turned around: the server ([Driver]) sends HTTP/2
// requests over that connection, and the agent answers them with a driver of its own, that of
// package local. Pings on both sides find a connection that is dead without saying so.
//
//	GET  /probe    driver.Info
//	POST /start    berth.Launch
//	GET  /tasks    []driver.Observed
//	POST /stop     stopRequest
//	POST /remove   removeRequest
//
// Only the five calls of the contract go this way. Reports, logs, code, inputs and outputs go from
// the runner to the server over HTTPS, as they do from every runner that does not share the
// server's disk, so a task goes on while the connection is cut and nothing of it is lost.
package dialout
