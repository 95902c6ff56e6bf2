#!/bin/bash
# A model's size by case, strings of flags, eval, and sizes that follow from others.
set -euo pipefail
MODEL_SIZE=${1:-8B}
TP=${TP:-4}; PP=${PP:-"2"}
case $MODEL_SIZE in
  1B | 1.*B)
    NUM_LAYERS=16; HIDDEN=2048; HEADS=32 ;;
  8B)
    NUM_LAYERS=32
    HIDDEN=4096
    HEADS=32
    ;;
  "70B") NUM_LAYERS=80; HIDDEN=8192; HEADS=64 ;;
  *)
    echo "unknown size ${MODEL_SIZE}" >&2
    exit 1
esac
FFN=$(( HIDDEN * 8 / 3 / 256 * 256 + (HIDDEN * 8 / 3 % 256 > 0 ? 256 : 0) ))
gpt_options=" \
       --num-layers ${NUM_LAYERS} \
       --hidden-size ${HIDDEN} \
       --num-attention-heads ${HEADS} \
       --ffn-hidden-size ${FFN} \
       --seq-length 4096 --max-position-embeddings 4096 \
       --position-embedding-type rope --swiglu --normalization RMSNorm \
       --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 128256"
if (( PP > 1 )) && [ "$TP" -ge 2 ]; then
  gpt_options="${gpt_options} --sequence-parallel"
fi
run_cmd="torchrun --nproc_per_node 8 pretrain_gpt.py ${gpt_options} \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP \
  --micro-batch-size 1 --global-batch-size 64 --bf16"
echo ${run_cmd}
eval ${run_cmd}
set +x
