"""Writes catalogue.json: the embedded price catalogue, one price line a row.

Run by `go generate ./ingest/price` in a virtual environment that holds the
pinned genai-prices package (see run.sh). Names are exact: a prefix rule of the
source becomes the prefix itself, since a new model must never match an older
one's line. What the source says and this format cannot is counted on stderr.
"""

import datetime
import json
import sys
from importlib.metadata import version

from genai_prices.data import providers
from genai_prices.types import (
    ClauseEquals,
    ClauseOr,
    ClauseStartsWith,
    ConditionalPrice,
    StartDateConstraint,
    TieredPrices,
    TimeOfDateConstraint,
)

PROVIDERS = {"aws": "bedrock", "x-ai": "xai", "moonshotai": "moonshot"}
PER_MILLION = {
    "input_mtok": "input",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write_5m",
    "cache_write_1h_mtok": "cache_write_1h",
    "output_mtok": "output",
    "input_audio_mtok": "input_audio",
    "input_image_mtok": "input_image",
    "output_audio_mtok": "output_audio",
    "output_image_mtok": "output_image",
}
PER_UNIT = {  # name, how many of the unit the figure is for
    "web_searches_kcount": ("web_search", 1000),
    "requests_kcount": ("request", 1000),
    "input_document_kpages": ("page", 1000),
    "audio_hours": ("second", 3600),
    "input_audio_hours": ("second", 3600),
}
TIERS = {("processing", "batch"): "batch", ("speed", "fast"): "fast", ("service_tier", "fast"): "fast", ("service_tier", "flex"): "flex",
         ("service_tier", "priority"): "priority", ("processing", "flex"): "flex", ("processing", "priority"): "priority"}
skipped = {}


def skip(what):
    skipped[what] = skipped.get(what, 0) + 1


def text(d):
    s = format(round(d, 12), "f")  # a few figures of the source are binary floats
    return s.rstrip("0").rstrip(".") if "." in s else s


def names(model):
    out = {model.id.lower()}

    def walk(clause):
        if isinstance(clause, ClauseEquals):
            out.add(clause.equals.lower())
        elif isinstance(clause, ClauseStartsWith):
            if len(clause.starts_with) > 3:
                out.add(clause.starts_with.lower().rstrip("-:@"))
        elif isinstance(clause, ClauseOr):
            for c in clause.or_:
                walk(c)
        else:
            skip(type(clause).__name__)

    walk(model.match)
    return sorted(out)


def rates(price):
    """per_million, per_unit and above_input_tokens of one ModelPrice."""
    flat, unit, tiers = {}, {}, {}
    for field, value in vars(price).items():
        if value is None:
            continue
        if field in PER_MILLION:
            name = PER_MILLION[field]
            if isinstance(value, TieredPrices):
                flat[name] = text(value.base)
                for tier in value.tiers:
                    tiers.setdefault(tier.start, {})[name] = text(tier.price)
            else:
                flat[name] = text(value)
        elif field in PER_UNIT and not isinstance(value, TieredPrices):
            name, count = PER_UNIT[field]
            unit[name] = text(round(value / count, 12))
        else:
            skip(field)
    out = {}
    if flat:
        out["per_million"] = flat
    if unit:
        out["per_unit"] = unit
    if tiers:
        out["above_input_tokens"] = [{"over": n, "per_million": r} for n, r in sorted(tiers.items())]
    return out


def midnight(day):
    return day.strftime("%Y-%m-%dT00:00:00Z")


rows = []
for provider in sorted(providers, key=lambda p: p.id):
    pid = PROVIDERS.get(provider.id, provider.id)
    for model in sorted(provider.models, key=lambda m: m.id):
        prices = model.prices if isinstance(model.prices, list) else [ConditionalPrice(prices=model.prices)]
        dated = [p for p in prices if not isinstance(p.constraint, TimeOfDateConstraint)]
        bands = [p for p in prices if isinstance(p.constraint, TimeOfDateConstraint)]
        for i, p in enumerate(dated):
            row = {"provider": pid, "models": names(model)}
            if isinstance(p.constraint, StartDateConstraint):
                row["from"] = midnight(p.constraint.start_date)
            if i + 1 < len(dated) and isinstance(dated[i + 1].constraint, StartDateConstraint):
                row["to"] = midnight(dated[i + 1].constraint.start_date)
            row.update(rates(p.prices))
            for b in bands:
                band = rates(b.prices)
                row.setdefault("time_bands", []).append({
                    "from": b.constraint.start_time.strftime("%H:%M"),
                    "to": b.constraint.end_time.strftime("%H:%M"),
                    "per_million": band.get("per_million", {}),
                })
            for v in model.price_variants or []:
                key = next(iter(v.when.items())) if len(v.when) == 1 else None
                if key not in TIERS or isinstance(v.constraint, TimeOfDateConstraint):
                    skip("variant %s" % v.when)
                    continue
                if isinstance(v.constraint, StartDateConstraint) and row.get("to", "9") <= midnight(v.constraint.start_date):
                    continue
                tier = rates(v.prices)
                if isinstance(v.constraint, StartDateConstraint):
                    tier["from"] = midnight(v.constraint.start_date)
                row.setdefault("service_tiers", {})[TIERS[key]] = tier
            if row.get("per_million") or row.get("per_unit"):
                rows.append(row)

fallback = {PROVIDERS.get(p.id, p.id): [PROVIDERS.get(f, f) for f in p.fallback_model_providers]
            for p in providers if p.fallback_model_providers}
head = {"version": "genai-prices " + version("genai-prices"), "generated": datetime.date.today().isoformat(), "fallback": fallback}
with open(sys.argv[1], "w") as f:
    f.write(json.dumps(head)[:-1] + ',\n"prices": [\n')
    f.write(",\n".join(json.dumps(r, separators=(",", ":")) for r in rows))
    f.write("\n]}\n")
print(len(rows), "rows; not carried over:", skipped, file=sys.stderr)
