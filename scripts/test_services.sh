#!/bin/sh
# Installs the services that integration tests start on loopback: the OpenSSH server, which stands
# for a machine, and the Docker Engine. Needs root (or sudo) and Debian or Ubuntu; tests skip what
# is not there.
set -eu

PATH="$PATH:/usr/sbin:/usr/local/sbin"
missing=""
command -v sshd >/dev/null || missing="$missing openssh-server openssh-client"
command -v dockerd >/dev/null || missing="$missing docker.io"
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null; then
    echo "no apt-get: install$missing yourself to run the tests that need them" >&2
    exit 0
fi
sudo=""
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "not root and no sudo: install$missing yourself" >&2
        exit 0
    fi
    sudo="sudo -n"
fi
$sudo apt-get -o DPkg::Lock::Timeout=300 update -qq
# No service is started or enabled: tests run their own, on loopback, without this host's config.
$sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -o DPkg::Lock::Timeout=300 \
    install -y -qq --no-install-recommends $missing >/dev/null
$sudo mkdir -p /run/sshd
