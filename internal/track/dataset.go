package track

import (
	"slices"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// A change of a run writes it whole. Long texts of its datasets are therefore in documents of their
// own, which are written once and read for answers only.

const (
	longDataset = 16 << 10 // bytes of text from which a dataset has a document of its own
	// maxDatasetTexts bounds those of a run: MLflow's own limits let one dataset have so much.
	maxDatasetTexts = 20 << 20
	// maxSearchTexts is how many bytes of runs and of these texts a page of a search has: it ends
	// early.
	maxSearchTexts = 32 << 20
)

// datasetTexts are the texts of a dataset that may be long.
type datasetTexts struct{ Source, Schema, Profile string }

func (d *dataset) texts() datasetTexts { return datasetTexts{d.Source, d.Schema, d.Profile} }

func (d *dataset) setTexts(t datasetTexts) {
	d.Source, d.Schema, d.Profile = t.Source, t.Schema, t.Profile
}

func (t datasetTexts) size() int { return len(t.Source) + len(t.Schema) + len(t.Profile) }

// datasetDoc is the name of the document with the texts of a dataset of a run.
func datasetDoc(run string, n int) string { return run + "/" + itoa(n) }

// setApart moves long texts of a run's datasets to documents of their own.
func (c *change) setApart(r *run) error {
	for i, old := range r.Datasets {
		t := old.Dataset.texts()
		if old.Apart > 0 || t.size() < longDataset {
			continue
		}
		r.Datasets = slices.Clone(r.Datasets) // others may have the list
		in := &r.Datasets[i]
		own, err := marshal(t)
		if err != nil {
			return err
		}
		if r.Apart += len(own); r.Apart > maxDatasetTexts && !c.state { // as it is stored and sent
			return invalid("run %s has more than %d MiB of datasets with this request. Log large values as artifacts.", r.ID, maxDatasetTexts>>20)
		}
		in.Apart = i + 1
		in.Dataset.setTexts(datasetTexts{})
		if err := c.tx.Insert(&store.Doc{Workspace: c.w.Key, Kind: kindDatasets, Name: datasetDoc(r.ID, in.Apart), Own: own}); err != nil {
			return err
		}
	}
	return nil
}

// removeApart deletes the texts of a run's datasets.
func (c *change) removeApart(r *run) error {
	for _, in := range r.Datasets {
		if in.Apart == 0 {
			continue
		}
		err := c.tx.Delete(c.w.Key, kindDatasets, datasetDoc(r.ID, in.Apart), "")
		if err != nil && berth.CodeOf(err) != berth.NotFound {
			return err
		}
	}
	return nil
}

// datasets are the datasets of a run with all of their texts.
func (c *call) datasets(r *run) ([]datasetInput, error) {
	if r.Apart == 0 {
		return r.Datasets, nil
	}
	all := slices.Clone(r.Datasets)
	err := c.s.DB.View(c.ctx, func(tx *store.Tx) error {
		for i := range all {
			in := &all[i]
			if in.Apart == 0 {
				continue
			}
			d, err := tx.Get(c.Key, kindDatasets, datasetDoc(r.ID, in.Apart), "")
			if berth.CodeOf(err) == berth.NotFound {
				continue // the run was removed meanwhile
			}
			if err != nil {
				return err
			}
			t, err := store.State[datasetTexts](d)
			if err != nil {
				return err
			}
			in.Apart = 0
			in.Dataset.setTexts(t)
		}
		return nil
	})
	return all, err
}

// withTexts is how many of some runs fit into one answer, at least one.
func withTexts(runs []*run) int {
	size := 0
	for i, r := range runs {
		if size += r.Apart + r.size; size > maxSearchTexts && i > 0 {
			return i
		}
	}
	return len(runs)
}
