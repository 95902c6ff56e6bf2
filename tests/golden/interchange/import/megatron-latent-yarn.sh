torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py \
  --num-layers 4 --hidden-size 1024 --num-attention-heads 8 --ffn-hidden-size 2816 --swiglu --normalization RMSNorm \
  --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope --rotary-base 10000 \
  --multi-latent-attention --q-lora-rank 256 --kv-lora-rank 128 --qk-head-dim 64 --qk-pos-emb-head-dim 32 \
  --v-head-dim 64 --rotary-scaling-factor 40 --mscale 1.0 --mscale-all-dim 0.707 --seq-length 4096 \
  --max-position-embeddings 163840 --vocab-size 102400 --micro-batch-size 1 --global-batch-size 32 --train-iters 1000 --bf16
