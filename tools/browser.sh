#!/usr/bin/env bash
# Installs the browser that test/browser opens a preview with. Where it cannot be had
# that test is skipped, and says so.
set -uo pipefail
need=()
command -v chromium >/dev/null || need+=(chromium)
command -v certutil >/dev/null || need+=(libnss3-tools)
[ ${#need[@]} -gt 0 ] || exit 0
echo "installing: ${need[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update && timeout 300 apt-get -qq install -y --no-install-recommends "${need[@]}" >/dev/null ||
  echo "NOT INSTALLED: ${need[*]}; test/browser will be skipped" >&2
