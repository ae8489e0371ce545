package track

// What the token of a job opens: its own run, the runs and models it made, and the experiment they are in. Everybody else's token
// opens the workspace.

// jobRun is the run of the job that asks; serve has seen to it that it is there.
func (c *call) jobRun() *run { return c.run(c.who.Job) }

// mayRun refuses runs that are not the job's.
func (c *call) mayRun(r *run) error {
	if c.who.Job == "" || r.ID == c.who.Job || r.Job == c.who.Job {
		return nil
	}
	return refuse(denied, "The token of job %s does not open run %s", c.who.Job, r.ID)
}

// mayExperiment refuses experiments that the job is not in.
func (c *call) mayExperiment(id string) error {
	if c.who.Job == "" {
		return nil
	}
	if r := c.jobRun(); r != nil && r.Experiment == id {
		return nil
	}
	return refuse(denied, "The token of job %s does not open experiment %s", c.who.Job, id)
}

// mayLogged refuses models that the job did not make.
func (c *call) mayLogged(m *loggedModel) error {
	if c.who.Job == "" || m.Job == c.who.Job {
		return nil
	}
	return refuse(denied, "The token of job %s does not open model %s", c.who.Job, m.ID)
}

// mayCreateExperiment refuses jobs: they have one.
func (c *change) mayCreateExperiment(who Caller) error {
	if who.Job == "" {
		return nil
	}
	return refuse(denied, "The token of job %s makes no experiments: name the experiment in the job (experiment_name)", who.Job)
}
