#!/bin/sh
# Fetch what `motet bench --peers` can compare with into one directory, and install nothing:
#
#     benchmarks/fetch_peers.sh /tmp/peers
#     MOTET_PEERS=/tmp/peers/root PYTHONPATH=/tmp/peers/site .venv/bin/motet bench --peers
#
# Clients come from PyPI, brokers and libraries from Debian's archive, unpacked and not installed. JGroups also needs java
# and javac, 17 or newer, which are not fetched.
set -eu

where=${1:?the directory to fetch into}
python=${PYTHON:-.venv/bin/python}
mkdir -p "$where/debs" "$where/root"
"$python" -m pip install --quiet --target "$where/site" --upgrade --requirement "$(dirname "$0")/peers/requirements.txt"
cd "$where/debs"
apt-get download nats-server redis-server redis-tools corosync libcpg4 libcfg7 libcmap4 libcorosync-common4 \
    libquorum5 libvotequorum8 libsam4 libknet1 libqb100 libnozzle1 libnl-3-200 libnl-route-3-200 libstatgrab10 \
    liblua5.1-0 lua-bitop lua-cjson liblzf1 libjemalloc2 libatomic1 libnorm1 libjgroups-java
for package in *.deb; do
    dpkg -x "$package" ../root
done
