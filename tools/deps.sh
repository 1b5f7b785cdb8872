#!/usr/bin/env bash
# Installs what the build and the tests need from the distribution, and nothing
# that is there already. Needs root for what is missing.
set -euo pipefail
need=()
command -v mmdebstrap >/dev/null || need+=(mmdebstrap)
command -v mkfs.erofs >/dev/null || need+=(erofs-utils)
command -v gcc        >/dev/null || need+=(gcc libc6-dev)   # the race detector
command -v git        >/dev/null || need+=(git)
command -v jq         >/dev/null || need+=(jq)
command -v npm        >/dev/null || need+=(nodejs npm)       # published clients, as they are
python3 -c 'import venv, ensurepip' 2>/dev/null || need+=(python3-venv)
command -v mkfs.xfs   >/dev/null || need+=(xfsprogs)         # the store of layers
command -v mkfs.ext4  >/dev/null || need+=(e2fsprogs)        # volumes
[ -f /etc/ssl/certs/ca-certificates.crt ] || need+=(ca-certificates)
if [ ${#need[@]} -gt 0 ]; then
  echo "installing: ${need[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update
  apt-get -qq install -y --no-install-recommends "${need[@]}" >/dev/null
fi
command -v go >/dev/null || { echo "Go is missing: install Go $(sed -n 's/^go //p' go.mod) or later" >&2; exit 1; }
