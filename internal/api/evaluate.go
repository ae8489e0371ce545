package api

import (
	"path"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/mltable"
	"github.com/berthml/berth/internal/store"
)

// checkTables refuses a job, or one with such a step, whose inputs are tables that a node could not
// evaluate. Nodes refuse those that are not in the server's storage, or not there yet.
func checkTables(c *call, props map[string]any) error {
	if err := checkTablesOf(c, "properties", props); err != nil {
		return err
	}
	for name, step := range asMap(props["jobs"]) {
		if err := checkTablesOf(c, "properties.jobs."+name, asMap(step)); err != nil {
			return err
		}
	}
	return nil
}

func checkTablesOf(c *call, where string, props map[string]any) error {
	for name, v := range asMap(props["inputs"]) {
		in := asMap(v)
		if text(in, "uri") == "" || !berth.EvaluatesInput(text(in, "mode")) {
			continue
		}
		if err := checkTable(c, text(in, "uri")); err != nil {
			return berth.Errorf(berth.CodeOf(err), "%s.inputs.%s: %w", where, name, err)
		}
	}
	return nil
}

func checkTable(c *call, uri string) error {
	var folder locate.Place
	err := c.s.DB.View(c.ctx(), func(tx *store.Tx) error {
		// What is wrong with the address is said when the job is submitted.
		if p, err := c.s.Resolve(tx, c.ws, c.who.User, uri); err == nil {
			folder = p
		}
		return nil
	})
	if err != nil || !folder.Ours() {
		return err
	}
	content, err := c.s.Blobs.ReadSmall(c.ctx(), folder.Container, path.Join(folder.Name, mltable.Name), mltable.MaxSize)
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	if err == nil {
		_, err = mltable.Parse(content)
	}
	return err
}
