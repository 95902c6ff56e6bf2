#!/bin/bash
GPUS_PER_NODE=8
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes 4 pretrain_gpt.py \
  --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --group-query-attention --num-query-groups 4 \
  --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 2 --global-batch-size 64 \
  --rampup-batch-size 16 16 1000 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 \
  --num-layers-per-virtual-pipeline-stage 3 --sequence-parallel --context-parallel-size 1 \
  --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear \
  --untie-embeddings-and-output-weights --use-distributed-optimizer --overlap-grad-reduce \
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --bf16 \
  --lr 1e-4 --min-lr 1e-5 --train-iters 100 --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 \
  --clip-grad 1.0 --vocab-size 50257 --make-vocab-size-divisible-by 128 --use-flash-attn
