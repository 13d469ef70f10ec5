package app

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/flyball/flyball/enforce"
	"github.com/flyball/flyball/ingest"
	"github.com/flyball/flyball/schema"
)

// forgetting is whom POST /forget is about.
type forgetting struct {
	Tenant  string `json:"tenant"`
	User    string `json:"user"`
	Reason  string `json:"reason"`
	Release bool   `json:"release"`
}

// forgetStatus is how far a user's forgetting is. It does not have his id.
type forgetStatus struct {
	Tenant    string    `json:"tenant"`
	Pseudonym string    `json:"pseudonym"`
	Actor     string    `json:"actor"`
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
	Step      string    `json:"step"`            // what is done, or waited for
	Error     string    `json:"error,omitempty"` // of the last attempt; another follows
}

// forgetter is the one user being forgotten.
type forgetter struct {
	wake chan struct{}

	mu        sync.Mutex // guards below
	step, err string
}

func (f *forgetter) at(step string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.step = step
}

func (f *forgetter) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err.Error()
}

func (f *forgetter) status(j *ingest.ForgetJob) forgetStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return forgetStatus{j.Tenant, j.Pseudonym, j.Actor, j.Reason, j.At, f.step, f.err}
}

// admin authenticates an admin; the answer is given where there is none.
func (a *App) admin(c *gin.Context) (schema.Key, bool) {
	c.Header("Cache-Control", "no-store")
	key, err := a.keys.Load().Require(c.Request)
	var denied schema.AccessError
	if errors.As(err, &denied) {
		problem(c, denied.Status, "%s", denied.Detail)
	}
	return key, err == nil
}

// forgetUser begins to forget a user.
func (a *App) forgetUser(c *gin.Context) {
	key, ok := a.admin(c)
	if !ok {
		return
	}
	var in forgetting
	if err := schema.ReadBody(c.Writer, c.Request, &in); err != nil {
		problem(c, http.StatusBadRequest, "%v; want {\"tenant\":\"t-1\",\"user\":\"…\",\"reason\":\"…\"}, optionally release", err)
		return
	}
	if in.Tenant == "" && !key.AllowsAll() && len(key.Tenants) == 0 {
		in.Tenant = key.Tenant
	}
	f := schema.NewForgetting(in.Tenant, in.User, schema.Pseudonym())
	in.Reason = strings.TrimSpace(in.Reason)
	switch {
	case in.Tenant == "":
		problem(c, http.StatusBadRequest, "tenant is missing: the key may act for several, and a user is one tenant's")
	case strings.TrimSpace(in.User) == "" || len(in.User) > 512:
		problem(c, http.StatusBadRequest, "user is missing or longer than 512 bytes: want the id as calls have it")
	case in.Reason == "" || len(in.Reason) > 500:
		problem(c, http.StatusBadRequest, "a reason of 1 to 500 bytes is required: it is what others read later")
	case f.Text(in.Reason) != in.Reason:
		problem(c, http.StatusBadRequest, "the reason names the user, and it is kept; give a reference instead")
	case !key.Allows(in.Tenant):
		problem(c, http.StatusForbidden, "key %s may not act for tenant %s", key.Name, in.Tenant)
	case a.cfg.ClickHouse.Cluster != "":
		problem(c, http.StatusNotImplemented, "%v", schema.ErrForgetCluster)
	default:
		a.beginForget(c, f, ingest.ForgetJob{Tenant: in.Tenant, User: in.User, Pseudonym: f.Pseudonym, Reason: in.Reason, Actor: key.Name, At: time.Now().UTC().Truncate(time.Microsecond)}, in.Release)
	}
}

func (a *App) beginForget(c *gin.Context, f *schema.Forgetting, job ingest.ForgetJob, release bool) {
	e := a.engine.Load()
	if e == nil {
		problem(c, http.StatusServiceUnavailable, "ClickHouse is not up yet; see /readyz")
		return
	}
	switch err := schema.ForgetTables(c.Request.Context(), e.Conn()); {
	case errors.Is(err, schema.ErrForgetCluster):
		problem(c, http.StatusNotImplemented, "%v", err)
		return
	case err != nil:
		a.log.Error("look for tables with users", "err", err)
		problem(c, http.StatusServiceUnavailable, "ClickHouse cannot answer now; see the server's log")
		return
	}
	for _, k := range a.keys.Load().Keys() {
		if k.Allows(f.Tenant) && f.Is(f.Tenant, k.Bind["user"]) {
			problem(c, http.StatusConflict, "key %s is bound to the user; take that out of the configuration first", k.Name)
			return
		}
	}
	var in enforce.InputError
	switch err := a.loop.Obstacles(f, release); {
	case errors.As(err, &in):
		problem(c, in.Status, "%s", in.Detail)
		return
	case err != nil:
		a.log.Error("forget user", "err", err)
		problem(c, http.StatusInternalServerError, "the request failed; see the server's log")
		return
	}
	err := a.pipeline.BeginForget(job)
	if errors.Is(err, ingest.ErrForgetting) {
		problem(c, http.StatusConflict, "%v; see GET /api/v1/forget", err)
		return
	}
	if err == nil {
		err = errors.Join(a.loop.Forget(f), a.loop.Record(forgetEvent(&job, "started")))
	}
	if err != nil {
		a.failed(err) // it goes on after a restart
		problem(c, http.StatusInternalServerError, "the service stops after an error; the user is forgotten after its next start, see GET /api/v1/forget")
		return
	}
	a.forget.at("begun")
	a.forget.wake <- struct{}{}
	c.JSON(http.StatusAccepted, a.forget.status(&job))
}

func forgetEvent(j *ingest.ForgetJob, action string) enforce.Event {
	return enforce.Event{At: time.Now().UTC(), Kind: "forget", Tenant: j.Tenant, Scope: "user " + j.Pseudonym, User: j.Pseudonym, Action: action, Actor: j.Actor, Reason: j.Reason}
}

// forgetProgress tells whether a user is being forgotten.
func (a *App) forgetProgress(c *gin.Context) {
	key, ok := a.admin(c)
	if !ok {
		return
	}
	out := []forgetStatus{}
	if j := a.pipeline.Forgetting(); j != nil && key.Allows(j.Tenant) {
		out = append(out, a.forget.status(j))
	}
	c.JSON(http.StatusOK, gin.H{"running": out})
}

// forgetUsers does what requests began, and what a restart cut off, until it is done.
func (a *App) forgetUsers() {
	wake := a.forget.wake
	if a.pipeline.Forgetting() != nil {
		wake = nil // it goes on
	}
	for pause := time.Second; ; {
		if wake != nil {
			select {
			case <-a.ctx.Done():
				return
			case <-wake: // not sooner: enforcement has to know of it
			}
		}
		wake = nil
		err := a.pipeline.Forget(a.ctx, ingest.ForgetSteps{
			Step: a.forget.at,
			Rows: func(ctx context.Context, f *schema.Forgetting, alone func(func() error) error) error {
				e := a.engine.Load()
				if e == nil {
					return errors.New("clickhouse is not up yet")
				}
				if err := a.loop.ForgetArchive(ctx, f); err != nil {
					return err
				}
				return schema.ForgetRows(ctx, e.Conn(), f, alone)
			},
			Rest:    func(f *schema.Forgetting) error { return a.loop.ForgetStored(a.ctx, f) },
			Renamed: a.loop.EndForget,
			Done: func(j ingest.ForgetJob) error {
				a.log.Info("user forgotten", "tenant", j.Tenant, "pseudonym", j.Pseudonym, "by", j.Actor, "took", time.Since(j.At).Round(time.Millisecond))
				return a.loop.Record(forgetEvent(&j, "done"))
			},
		})
		if a.ctx.Err() != nil {
			return
		}
		if err == nil {
			pause, wake = time.Second, a.forget.wake
			a.forget.mu.Lock()
			a.forget.step, a.forget.err = "", ""
			a.forget.mu.Unlock()
			continue
		}
		a.forget.failed(err)
		a.log.Warn("user is not forgotten yet", "err", err, "again_in", pause)
		select {
		case <-a.ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Minute)
	}
}
