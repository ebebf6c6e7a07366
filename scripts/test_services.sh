#!/bin/sh
# Installs the services that integration tests start on loopback: the OpenSSH server, which stands
# for a rented machine. Needs root (or sudo) and Debian or Ubuntu; tests skip what is not there.
set -eu

PATH="$PATH:/usr/sbin:/usr/local/sbin"
if command -v sshd >/dev/null; then
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "no apt-get: install the OpenSSH server yourself to run the tests that need it" >&2
    exit 0
fi
sudo=""
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "not root and no sudo: install openssh-server yourself" >&2
        exit 0
    fi
    sudo="sudo -n"
fi
$sudo apt-get update -qq
# No service is started or enabled: tests run their own, on loopback, without this host's config.
$sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -y -qq --no-install-recommends openssh-server openssh-client >/dev/null
$sudo mkdir -p /run/sshd
