#!/usr/bin/env bash
# Installs what building, testing and running Packstone needs on Debian 12: a C compiler, FUSE, PostgreSQL 15 with its
# contrib programs, a few tools that the end-to-end tests drive, and Rust.
#
# With --suites it installs the test suites of others as well, which `make test` and `make posix` run through a mount:
# Debian packages, and two programs that cargo builds into tools/bin of the build directory.
#
# With --lab it installs what the lab needs besides: the other file systems' tools, and fio.
#
# With --flame-graphs it installs what the lab needs for flame graphs: perf, and the programs that render them, into the
# same place; PACKSTONE_INFERNO_BIN=target/tools/bin tells the lab where they are.
#
# Safe to run again: it installs only what is missing and is quick when nothing is. Run by another user than root it
# installs nothing with apt; it says what is missing and goes on, because most of the tests need less than all of it.
set -euo pipefail

# The oldest compiler that is good enough stands in one place: the workspace's `rust-version`.
ROOT=$(cd "$(dirname "$0")/.." && pwd)
RUST_MINIMUM=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$ROOT/Cargo.toml")
readonly ROOT RUST_MINIMUM

# package:what it is for
readonly PACKAGES=(
    gcc:"the C compiler that builds zstd and links"
    libc6-dev:"C headers and start files"
    make:"the Makefile"
    ca-certificates:"downloading crates"
    curl:"installing Rust where it is missing"
    git:"a workload of the end-to-end tests"
    rsync:"a workload of the end-to-end tests"
    attr:"setfattr and getfattr, for tests"
    acl:"setfacl and getfacl, for tests"
    fuse3:"fusermount3, which mounts for users other than root"
    util-linux:"umount"
    procps:"ps"
    postgresql-15:"the server, pgbench, pg_amcheck and contrib modules"
    postgresql-client-15:"psql"
)

# The test suites of others, installed with --suites.
readonly SUITE_PACKAGES=(
    stress-ng:"its file system stressors"
    fio:"blocks with checksums"
    dbench:"the load of a file server"
    e2fsprogs:"mkfs.ext4, for the control"
    mount:"mounting the control"
)

# What `packstone lab` compares with, installed with --lab.
readonly LAB_PACKAGES=(
    e2fsprogs:"mkfs.ext4, the usual control"
    xfsprogs:"mkfs.xfs"
    btrfs-progs:"mkfs.btrfs"
    mount:"mounting them, and loop devices"
    fio:"the workload fio"
)

# crate:version. Programs that are run, not libraries that are linked: their licences do not bind what is built here.
readonly SUITE_CRATES=(
    pjdfstest:0.2.2
    fsx:0.3.2
)

# For flame graphs of the lab, installed with --flame-graphs; run, not linked (docs/decisions/0007-lab-libraries.md).
readonly FLAME_PACKAGES=(
    linux-perf:"perf, which takes samples"
)
readonly FLAME_CRATES=(
    inferno:0.12.8:inferno-flamegraph
)

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

is_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Prints which of the given packages are missing, one a line.
missing_packages() {
    local entry
    for entry in "$@"; do
        is_installed "${entry%%:*}" || printf '%s\n' "${entry%%:*}"
    done
}

# The distribution would create and start a cluster of its own on port 5432. Nothing here uses it.
forbid_default_cluster() {
    local conf=/etc/postgresql-common/createcluster.conf
    is_installed postgresql-15 && return
    mkdir -p /etc/postgresql-common
    if ! grep -qs '^create_main_cluster' "$conf"; then
        printf 'create_main_cluster = false\n' >>"$conf"
    fi
}

install_packages() {
    command -v dpkg-query >/dev/null || { say "this is not a Debian system: install by hand what scripts/setup.sh lists"; return; }
    local missing
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -eq 0 ] && return
    if [ "$(id -u)" -ne 0 ]; then
        say "missing: ${missing[*]}"
        say "install them as root with: apt-get install ${missing[*]}"
        return
    fi
    say "installing ${missing[*]}"
    forbid_default_cluster
    export DEBIAN_FRONTEND=noninteractive
    # An old package list names versions that are gone from the mirrors, so refresh it before, not after, a failure.
    apt-get update -qq || say "the package lists could not be refreshed; trying with the old ones"
    # --force-confold keeps the createcluster.conf written above where dpkg would ask.
    apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold "${missing[@]}" >/dev/null ||
        die "apt-get could not install: ${missing[*]}"
}

# True when the cargo on the path is at least RUST_MINIMUM.
has_rust() {
    command -v cargo >/dev/null || return 1
    local version
    version=$(cargo --version | cut -d' ' -f2)
    [ "$(printf '%s\n%s\n' "$RUST_MINIMUM" "$version" | sort -V | head -n1)" = "$RUST_MINIMUM" ]
}

install_rust() {
    export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    if ! has_rust; then
        say "Rust $RUST_MINIMUM or newer is missing: installing it with rustup"
        command -v curl >/dev/null || die "curl is missing, and Rust cannot be installed without it"
        local installer
        installer=$(mktemp)
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs -o "$installer" || {
            rm -f "$installer"
            die "no network to fetch rustup. Install Rust $RUST_MINIMUM or newer (cargo, rustfmt, clippy) and run this again"
        }
        sh "$installer" -y -q --profile minimal --component rustfmt --component clippy --default-toolchain stable ||
            die "rustup could not install Rust"
        rm -f "$installer"
        has_rust || die "Rust is still not usable: is ${CARGO_HOME:-$HOME/.cargo}/bin on the path?"
    fi
    if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
        if command -v rustup >/dev/null; then
            rustup component add rustfmt clippy >/dev/null 2>&1 || say "rustfmt or clippy is missing: 'make check' needs both"
        else
            say "rustfmt or clippy is missing: 'make check' needs both"
        fi
    fi
}

# The device of FUSE: present, and open to every user as Debian's rules for devices make it. Where no device manager runs
# (a container, a minimal virtual machine), both may be missing.
prepare_fuse() {
    if [ "$(id -u)" -eq 0 ]; then
        [ -e /dev/fuse ] || modprobe fuse 2>/dev/null || true
        if [ -c /dev/fuse ] && [ "$(stat -c %a /dev/fuse)" = 600 ] && ! pgrep -x systemd-udevd >/dev/null; then
            chmod 666 /dev/fuse || true
        fi
    fi
    [ -e /dev/fuse ] || say "/dev/fuse is missing: mounting will not work, and tests that mount are skipped"
}

# The programs of one crate, given as crate:version, or crate:version:program where no program has the crate's name, in
# tools/bin. Without optimisation: the suites spend their time in the kernel, flame graphs are small, and they build in half
# the time.
install_crate() {
    local crate version program tools=${CARGO_TARGET_DIR:-$ROOT/target}/tools
    IFS=: read -r crate version program <<<"$1"
    [ -x "$tools/bin/${program:-$crate}" ] && grep -qs "^\"$crate $version " "$tools/.crates.toml" && return
    say "building $crate $version"
    CARGO_TARGET_DIR=$tools/build cargo install "$crate" --version "$version" --locked --debug --quiet --root "$tools"
}

install_suites() {
    local entry
    install_packages "${SUITE_PACKAGES[@]}"
    for entry in "${SUITE_CRATES[@]}"; do
        install_crate "$entry" && continue
        # Elsewhere its tests are skipped, and say so; there it would go unnoticed.
        [ -z "${CI:-}" ] || die "cargo could not install $entry"
        say "cargo could not install $entry: the tests that need it are skipped"
    done
}

install_flame_graphs() {
    local entry
    install_packages "${FLAME_PACKAGES[@]}"
    for entry in "${FLAME_CRATES[@]}"; do
        install_crate "$entry" || die "cargo could not install $entry"
    done
}

case "${1:-}" in
"" | --suites | --lab | --flame-graphs) ;;
*) die "unknown argument '$1'; there are --suites, --lab and --flame-graphs" ;;
esac
install_packages "${PACKAGES[@]}"
install_rust
prepare_fuse
[ "${1:-}" != --suites ] || install_suites
[ "${1:-}" != --lab ] || install_packages "${LAB_PACKAGES[@]}"
[ "${1:-}" != --flame-graphs ] || install_flame_graphs
