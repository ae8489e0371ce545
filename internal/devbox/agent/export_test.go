//go:build linux

package agent

// GPUSignal is for tests.
var GPUSignal = gpuSignal
