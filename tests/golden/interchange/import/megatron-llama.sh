#!/bin/bash
# Llama 3 8B, as scripts are written: variables, arrays, quotes, line ends.
TP=2
PP=${PP:-2}
MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096
    --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --ffn-hidden-size 14336 --swiglu --normalization RMSNorm
    --position-embedding-type rope --rotary-base 500000
    --disable-bias-linear --untie-embeddings-and-output-weights
    --vocab-size 128256 --max-position-embeddings 8192
    --attention-dropout 0.0 --hidden-dropout 0.0
)
PARALLEL="--tensor-model-parallel-size ${TP} --pipeline-model-parallel-size $PP --sequence-parallel"
torchrun --nnodes=2 --nproc_per_node 8 --rdzv-endpoint "$HEAD:29500" pretrain_gpt.py \
    ${MODEL_ARGS[@]} $PARALLEL \
    --num-virtual-stages-per-pipeline-rank 4 \
    --seq-length 8192 --micro-batch-size 1 --global-batch-size 64 --train-iters 500 \
    --bf16 --use-distributed-optimizer --num-distributed-optimizer-instances 2 \
    --recompute-granularity full --recompute-method block --recompute-num-layers 4 \
    --rampup-batch-size 16 16 5000 --lr 1e-4 --min-lr 1e-5 \
    --log-interval 1 --tensorboard-dir logs --frobnicate 3
