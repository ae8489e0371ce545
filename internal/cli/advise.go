package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
)

func adviseCommand(s *session) *cobra.Command {
	var n berth.AdviceNeeds
	var job string
	cmd := &cobra.Command{
		Use:   "advise",
		Short: "Recommend where to run something and on what size",
		Long: "Recommends where to run a kind of work and on what size, with the rule behind each choice, and compares what earlier runs used with what they had.\n\n" +
			"  berth advise --case production --ram-gb 20\n" +
			"  berth advise --case realtime --model-gb 0.5\n" +
			"  berth advise --job last",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			if job != "" {
				j, err := s.job(cmd.Context(), c, job)
				if err != nil {
					return err
				}
				job = j.Name
			}
			a, err := c.Advise(cmd.Context(), n, job)
			if err != nil {
				return err
			}
			if s.format.chosen() {
				return s.print(a)
			}
			return s.printAdvice(a)
		},
	}
	f := cmd.Flags()
	f.StringVar(&n.Case, "case", "", strings.Join(berth.Cases, ", ")+" (default: all)")
	f.Float64Var(&n.DataGB, "data-gb", 0, "GB of data")
	f.Float64Var(&n.ModelGB, "model-gb", 0, "size of the model in GB")
	f.Float64Var(&n.RAMGB, "ram-gb", 0, "GB of RAM that the work needs")
	f.BoolVar(&n.GPU, "gpu", false, "it needs a GPU")
	f.StringVar(&job, "job", "", "a job whose resource use to consider")
	s.format.flags(cmd)
	return cmd
}

func (s *session) printAdvice(a *berth.Advice) error {
	h := &sheet{s: s}
	if a.Needs.Why != "" {
		h.line("memory: %s", a.Needs.Why)
		h.line("")
	}
	for _, t := range a.Targets {
		word := "or"
		if t.Best {
			word = "use"
		}
		h.line("%s: %s %s", s.paint(s.out, bold, t.Case), word, s.paint(s.out, green, t.Target))
		h.say("because", t.Rule)
		for i, o := range t.Sizes {
			h.say(map[bool]string{true: "size"}[i == 0], offerLine(o))
		}
		h.all("note", t.Notes)
		if !t.Here {
			h.say("but", "this server has no such target yet")
		}
		h.all("do", t.Do)
	}
	if len(a.Measured) > 0 {
		if len(a.Targets) > 0 {
			h.line("")
		}
		h.line("what runs used")
		for _, m := range a.Measured {
			h.line("  %s on %s (%s): %s", m.Job, m.Compute, m.Size, s.paint(s.out, map[string]string{"too large": yellow, "too small": red, "fits": green}[m.Verdict], m.Verdict))
			h.line("    %s", m.Advice)
		}
	}
	return h.err
}

// offerLine is a size with what it has and costs.
func offerLine(o berth.SizeOffer) string {
	text := fmt.Sprintf("%s: %d %s, %g GB", o.Name, o.VCPUs, plural(o.VCPUs, "vCPU"), o.MemoryGB)
	if o.GPUs > 0 {
		text += fmt.Sprintf(", %d %s", o.GPUs, strings.TrimSpace(o.GPU+" "+plural(o.GPUs, "GPU")))
	}
	price := "price unknown"
	if o.Price != nil {
		price = money(*o.Price, o.Currency) + " an hour"
	}
	if o.LowPrice != nil {
		price += ", " + money(*o.LowPrice, o.Currency) + " with low priority"
	}
	return text + "; " + price + " (" + o.Why + ")"
}
