# shellcheck shell=bash
# Creates and updates `.venv`. Sourced by deploy/run, tests/run and .ci/run.
# The caller has set -euo pipefail and `top`, the absolute path of the repository.

: "${top:?}"
venv="$top/.venv"

# Without bytecode a start takes twice as long, so ignore this variable of the caller's shell.
unset PYTHONDONTWRITEBYTECODE

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }
is_root() { [ "$(id -u)" -eq 0 ]; }

# Only one run at a time builds .venv or calls apt. The lock is on the directory deploy/, so no lock file remains.
lock() {
    exec {lock_fd}<"$top/deploy"
    if command -v flock >/dev/null; then
        flock -w 900 "$lock_fd" || die "no lock on $top/deploy within 15 minutes: another run is building .venv"
    fi
}

# Call it before any exec: an open descriptor would hand the lock to the daemon.
unlock() { exec {lock_fd}<&-; }

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Debian splits the venv module: `venv` is always installed, `ensurepip` comes with python3-venv.
can_make_venv() { "$1" -c 'import venv, ensurepip' 2>/dev/null; }

# Sets `python`, and prefers an interpreter that can make a venv already.
find_python() {
    local candidate
    python=
    for candidate in python3 python3.13 python3.12 python3.11; do
        is_new_enough "$candidate" || continue
        python=${python:-$candidate}
        if can_make_venv "$candidate"; then
            python=$candidate
            return
        fi
    done
    [ -n "$python" ] || die "no Python >= 3.11 found (looked for python3, python3.13, python3.12, python3.11)"
}

# Installs Debian packages one by one, so that an unknown name does not stop the others. It starts none of their
# services: policy-rc.d answers 101, "not allowed", while apt runs. A subshell, so that the trap is its own.
apt_install() (
    local policy=/usr/sbin/policy-rc.d package
    export DEBIAN_FRONTEND=noninteractive
    if [ ! -e "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        trap 'exit 1' INT TERM
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    apt-get update -q </dev/null >&2 || say "apt-get update failed; trying with the lists at hand"
    for package in "$@"; do
        say "installing $package with apt"
        apt-get install -q -y -o DPkg::Lock::Timeout=300 --no-install-recommends "$package" </dev/null >&2 ||
            say "apt could not install $package"
    done
)

ensure_venv_module() {
    can_make_venv "$python" && return
    local package
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if is_root && command -v apt-get >/dev/null; then
        apt_install "$package"
    fi
    can_make_venv "$python" || die "$python has no venv module; install the package $package and run this again"
}

# True if .venv was finished, belongs to this path, and has pip.
venv_works() {
    [ ! -e "$venv/.unfinished" ] &&
        is_new_enough "$venv/bin/python" &&
        "$venv/bin/python" -c 'import os, sys; sys.exit(not os.path.samefile(sys.prefix, sys.argv[1]))' "$venv" &&
        "$venv/bin/python" -m pip --version
} >/dev/null 2>&1

# `.unfinished` exists from the first to the last step. A venv that has it was interrupted and is made again.
make_venv() {
    find_python
    ensure_venv_module
    say "making $venv with $("$python" --version)"
    mkdir -p "$venv"
    find "$venv/" -mindepth 1 -delete
    touch "$venv/.unfinished"
    "$python" -m venv "$venv"
}

# Prints a hash of everything that makes a new installation necessary: requirements, version, and path (the scripts of a
# moved clone point to the old one). The code is not part of it, because the installation is editable.
fingerprint() {
    { printf '%s\n' "$top" && cat "$top/pyproject.toml" "$top/sidecar/__init__.py"; } | sha256sum | cut -d' ' -f1
}

# ensure_installed EXTRA (or ''): makes .venv, and installs or updates the package with that extra.
ensure_installed() {
    local extra=$1 stamp wanted quiet=--quiet
    [ ! -t 2 ] || quiet=--progress-bar=on
    stamp="$venv/.installed${extra:+-$extra}"
    lock
    venv_works || make_venv
    wanted=$(fingerprint)
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        say "installing health-arbiter${extra:+[$extra]} into $venv; this takes about a minute"
        "$venv/bin/python" -m pip install "$quiet" --no-input --disable-pip-version-check \
            --editable "$top${extra:+[$extra]}" </dev/null >&2 || die "pip could not install health-arbiter"
        # Every extra includes the package itself.
        printf '%s' "$wanted" >"$venv/.installed"
        printf '%s' "$wanted" >"$stamp"
    fi
    rm -f "$venv/.unfinished"
    unlock
}
