package app

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flyball/flyball/enforce"
	"github.com/flyball/flyball/enforce/limiter"
)

// rooms is what spans said lately about the rate limits of providers: the traffic light
// sees it once a second, however many spans there are.
type rooms struct {
	mu   sync.Mutex
	last map[string]enforce.Headroom // by provider, model and dimension
}

// mostRooms bounds what spans may name within a second.
const mostRooms = 1000

// read takes the headers of a provider's answer in. Nothing of its arguments is kept.
func (r *rooms) read(provider, model string, headers http.Header) {
	list := limiter.ReadHeadroom(provider, model, headers, time.Now())
	if len(list) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[string]enforce.Headroom{}
	}
	for _, h := range list {
		key := h.Provider + "|" + h.Model + "|" + h.Dimension
		if _, known := r.last[key]; known || len(r.last) < mostRooms {
			r.last[key] = enforce.Headroom{Provider: strings.Clone(h.Provider), Model: strings.Clone(h.Model), Dimension: strings.Clone(h.Dimension), Limit: h.Limit, Remaining: h.Remaining, ResetAt: h.ResetAt}
		}
	}
}

// reportRooms tells the traffic light.
func (a *App) reportRooms() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-t.C:
		}
		a.rooms.mu.Lock()
		list := slices.Collect(maps.Values(a.rooms.last))
		clear(a.rooms.last)
		a.rooms.mu.Unlock()
		if len(list) == 0 {
			continue
		}
		if err := a.loop.Report("spans", list, true); err != nil {
			a.log.Warn("rate limits on spans were not taken", "err", err)
		}
	}
}
