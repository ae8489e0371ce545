// Package slurm is the driver for a Slurm cluster whose commands (sbatch, squeue, scancel, sinfo)
// work on this machine or on a login node, or that slurmrestd speaks for.
//
// A task is a batch job. Its script has the launch in it, finds or fetches the program, and becomes
// a runner for this one task (package runner/alone), which reaches the server at its address. No
// disk has to be shared.
//
// Slurm forgets jobs some minutes after they ended, so the driver keeps a record of each task in
// its own directory until Remove. The job is named by the key of the task: a job whose number was
// not written down, because the server was killed at that moment, is found again by its name.
package slurm
