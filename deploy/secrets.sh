#!/bin/sh
# Makes what compose.yaml needs and is nobody else's business, once:
#
#   deploy/secrets.sh
#
#   deploy/.env         hashes of Flyball's keys, passwords of ClickHouse
#   deploy/secrets/     agents      what agents send to the collector with, one key a line
#                       collector   what the collector sends to Flyball with
#                       prometheus  what Prometheus reads /metrics with
#                       operator    for you: `flyball --key`, the console
#                       grafana     the password of Grafana's user admin
#
# Nothing is overwritten: to make one anew delete deploy/.env and deploy/secrets and run it
# again, then `docker compose up -d`. Grafana keeps the password that it was started with
# first.
#
#   SECRETS_DIR  another folder than that of this script (for tests)
set -eu
umask 077
cd "${SECRETS_DIR:-$(dirname "$0")}"

die() { printf 'secrets: %s\n' "$*" >&2; exit 1; }
command -v openssl >/dev/null || die "openssl is not installed: apt-get install openssl"
[ ! -e .env ] && [ ! -e secrets ] || die "deploy/.env or deploy/secrets is there already: delete both to make new ones"

random() { openssl rand -hex 32; }
sha256() { printf %s "$1" | openssl dgst -sha256 -r | cut -d' ' -f1; }

# put NAME VALUE keeps a secret where its service reads it: the folder is closed, the file
# is not, since each service has a user of its own. No line break at the end: the collector
# would send it.
put() { printf %s "$2" >"secrets/$1"; chmod 444 "secrets/$1"; }

mkdir secrets
collector=fb_$(random) prometheus=fb_$(random) operator=fb_$(random)
put agents "$(random)"
put collector "$collector"
put prometheus "$prometheus"
put operator "$operator"
put grafana "$(random)"
flyball_password=$(random) grafana_password=$(random)

cat >.env.new <<END
FLYBALL_KEYS='[{name: collector, sha256: $(sha256 "$collector"), role: ingest, tenant: default, tenants: "*"}, {name: prometheus, sha256: $(sha256 "$prometheus"), role: read, tenants: "*"}, {name: operator, sha256: $(sha256 "$operator"), role: admin, tenants: "*"}]'
CLICKHOUSE_FLYBALL_PASSWORD=$flyball_password
CLICKHOUSE_FLYBALL_SHA256=$(sha256 "$flyball_password")
CLICKHOUSE_GRAFANA_PASSWORD=$grafana_password
CLICKHOUSE_GRAFANA_SHA256=$(sha256 "$grafana_password")
END
mv .env.new .env
printf 'made %s/.env and %s/secrets\n' "$PWD" "$PWD" >&2
