#!/bin/bash
# Tests of the environment whose branches set nothing that a plan depends on.
NNODES=2
if [ -n "${WANDB_API_KEY}" ]; then
  EXTRA="--wandb-project ${WANDB_PROJECT:-gpt} --wandb-exp-name $(date +%s)"
else
  EXTRA=""
fi
if [ "$SLURM_PROCID" = 0 ]; then echo "rank 0"; mkdir -p logs; fi
if nvidia-smi | grep -q H100; then export NCCL_NVLS_ENABLE=1; else export NCCL_NVLS_ENABLE=0; fi
for host in $(cat hosts.txt); do ssh $host "pkill -f nothing || true"; done
while [[ $# -gt 0 ]]; do
  case $1 in
    --nodes) NNODES="$2"; shift 2 ;;
    *) shift ;;
  esac
done
cd /workspace/Megatron-LM && \
NCCL_DEBUG=INFO torchrun --nproc_per_node=8 --nnodes="$NNODES" \
  --master_addr "$MASTER_ADDR" pretrain_gpt.py \
  --num-layers 12 --hidden-size 768 --num-attention-heads 12 --vocab-size 50257 \
  --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 4 --global-batch-size 64 \
  --bf16 --save "$OUT" $EXTRA ${FOO:+--tensorboard-dir $FOO} "$@" || exit 1
cat <<JSON > ds_config.json
{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0}}
JSON
