#!/usr/bin/env bash
# Two hosts that share no disk: does a Ray cluster of both reconstruct and reproduce?
#
#     sudo benchmarks/two_hosts.sh PYTHON      (Linux, with `ip`, `unshare` and Ray; a few minutes)
#
# Two network namespaces are joined by a cable of their own and see nothing else. The second host has
# an empty /tmp, so that nothing the first one reads or writes is there. All cores are on the second,
# so that all the work is done there. The results must be those of one local process.
set -euo pipefail
python=$(realpath -s "${1:-python3}")
bin=$(dirname "$python")
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d /tmp/two-hosts-XXXX)
export PYTHONPATH="$here/src:$here" OMP_NUM_THREADS=1 RAY_USAGE_STATS_ENABLED=0 COLUMNS=100
# A token for this cluster alone, as every cluster should have one.
RAY_AUTH_TOKEN=$("$python" -c "import secrets; print(secrets.token_hex(32))")
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
head=10.77.0.1 far=10.77.0.2

clean() {
    [ $? -eq 0 ] || tail -n 5 "$work"/*.log >&2
    for host in pm-head pm-far; do
        for pid in $(ip netns pids $host 2> /dev/null); do kill -9 "$pid" 2> /dev/null || true; done
        ip netns delete $host 2> /dev/null || true
    done
    rm -rf "$work"
}
trap clean EXIT
on() { ip netns exec "pm-$1" "${@:2}"; }

ip netns add pm-head
ip netns add pm-far
ip link add pm-cable netns pm-head type veth peer name pm-cable netns pm-far
on head ip addr add $head/24 dev pm-cable
on far ip addr add $far/24 dev pm-cable
for host in head far; do
    on $host ip link set lo up
    on $host ip link set pm-cable up
done

"$python" - "$work" << 'END'
import sys
from pathlib import Path

from benchmarks.faults import jobs

folder = Path(sys.argv[1])
jobs(folder)
END

on head "$bin/ray" start --head --node-ip-address=$head --port=6379 --num-cpus=0 \
    --include-dashboard=false --disable-usage-stats --temp-dir="$work/r" > "$work/head.log" 2>&1
on far unshare --mount sh -c "mount -t tmpfs tmpfs /tmp && exec '$bin/ray' start \
    --address=$head:6379 --node-ip-address=$far --num-cpus=2 --block" > "$work/far.log" 2>&1 &
for _ in $(seq 60); do
    sleep 1
    on head "$bin/ray" status --address=$head:6379 2> /dev/null | grep -q "0.0/2.0 CPU" && break
done

reconstruct() {
    on head "$bin/proxmatch" reconstruct "$work/models/gs" "$work/pictures" --problem denoising \
        --iterations 20 --batch 1 --threads 1 --out "$work/$1" "${@:2}" > "$work/$1.log" || [ $? -eq 1 ]
}
reconstruct local
reconstruct ray --engine ray --address $head:6379
for file in "$work"/local/*.png "$work"/local/reconstruction.json; do
    cmp "$file" "$work/ray/${file##*/}"
done
echo "reconstruct: $(ls "$work"/ray/*.png | wc -l) files, those of one process"

reproduce() {
    on head "$python" - "$work" "$1" "${2:-}" << 'END'
import sys
from pathlib import Path

from proxmatch.experiments.reproduction import reproduce
from tests.experiments import tiny

folder, name, address = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
models = {
    f"{family}/{kind}": folder / "models" / "tiny" / family / kind
    for family in ("lpn", "gs")
    for kind in ("extreme", "reference")
}
how = {"engine": "ray", "address": address} if address else {"workers": 1}
found = reproduce(tiny.SCALE, folder / name, families=("lpn",), models=models, **how)
print(f"reproduce {name}: {found.cells} cells, {found.computed} computed")
END
}
reproduce here
reproduce there $head:6379
for file in images.csv iterations.csv claims.json tables/main.md; do
    cmp "$work/here/$file" "$work/there/$file"
done
echo "reproduce: tables and claims are those of one process"
