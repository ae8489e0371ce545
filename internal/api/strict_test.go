package api_test

import (
	"net/http"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/sched"
)

// A machine that is strict refuses what it does not have, when a cluster is made as in a plan;
// another warns.
func TestStrictMachine(t *testing.T) {
	x := open(t)
	on := func(m sched.Machine) { // the same server on another machine
		o := x.h.(*api.Server).Options
		o.Machine = m
		x.h = api.New(o)
	}
	body := map[string]any{"properties": map[string]any{"computeType": "AmlCompute", "properties": map[string]any{"vmSize": "Standard_DS3_v2"}}}
	one := job("", "", "resources", map[string]any{"instanceType": "Standard_DS3_v2"})
	ann := x.token("ann", auth.User)
	on(sched.Machine{CPUs: 2, Memory: 64 << 30, Strict: true})
	x.do("PUT", x.ws+"/computes/big", body).want(http.StatusBadRequest).says("the size has 4 CPUs, this machine 2")
	p := decode[berth.Plan](x.as(ann, "POST", x.ws+"/jobs/j/plan", one).want(http.StatusOK))
	if p.Verdict != berth.PlanNever || p.Limits[0].Kind != berth.LimitMachine {
		t.Errorf("%+v", p)
	}
	x.as(ann, "PUT", x.ws+"/jobs/j", one).want(http.StatusBadRequest).says("does not fit this machine")
	on(sched.Machine{CPUs: 2, Memory: 64 << 30})
	x.do("PUT", x.ws+"/computes/big", body).want(http.StatusCreated)
	if p = decode[berth.Plan](x.as(ann, "POST", x.ws+"/jobs/j/plan", one).want(http.StatusOK)); p.Verdict != berth.PlanSoon || len(p.Warnings) == 0 {
		t.Errorf("%+v", p)
	}
	on(sched.Machine{CPUs: 4, Memory: 64 << 30, Strict: true})
	x.do("PUT", x.ws+"/computes/right", body).want(http.StatusCreated)
}
