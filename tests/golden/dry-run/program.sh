#!/usr/bin/env bash
# Written by smp-launch --dry-run=sh: starts 2 ranks without smp-launch.
#   bash job.sh
# MASTER_ADDR, MASTER_PORT and SMP_JOB_KEY can be set. If a rank fails, the script ends
# all ranks.
set -uo pipefail
host=${1:-0}
: "${MASTER_ADDR:=127.0.0.1}" "${MASTER_PORT:=29500}"
: "${SMP_JOB_KEY:=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')}"
SMP_JOB_ID=$(printf %s "$SMP_JOB_KEY" | sha256sum | cut -c1-16)
TORCHELASTIC_RUN_ID=$SMP_JOB_ID
export MASTER_ADDR MASTER_PORT SMP_JOB_KEY SMP_JOB_ID TORCHELASTIC_RUN_ID
export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 GROUP_WORLD_SIZE=1 NODE_RANK=0 ROLE_NAME=default ROLE_WORLD_SIZE=2 TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 SMP_RUN_DIR=/FOLDER/run
mkdir -p /FOLDER/run/logs /FOLDER/run/errors /FOLDER/run/weights /FOLDER/run/checkpoints

rank() {
  local cpus; cpus=$(nproc)
  (export "$@"
   export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((cpus > LOCAL_WORLD_SIZE ? cpus / LOCAL_WORLD_SIZE : 1))}"
   exec /bin/echo 'it'\''s' '$(HOME) $$') </dev/null &
}
trap 'kill $(jobs -p) 2>/dev/null' EXIT
case $host in
0)
  rank RANK=0 LOCAL_RANK=0 ROLE_RANK=0 TORCHELASTIC_ERROR_FILE=/FOLDER/run/errors/rank-0.json SMP_ERROR_FILE=/FOLDER/run/errors/rank-0.json
  rank RANK=1 LOCAL_RANK=1 ROLE_RANK=1 TORCHELASTIC_ERROR_FILE=/FOLDER/run/errors/rank-1.json SMP_ERROR_FILE=/FOLDER/run/errors/rank-1.json
  ranks=2;;
*)
  echo "host $host: expected 0 to 0" >&2; exit 2;;
esac
while ((ranks-- > 0)); do wait -n || exit; done
